"""Verifiers that misbehave: their verdicts say so, the consumer goes on, and no other verifier's verdict suffers."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from schemas.enums import ScoreStatus
from schemas.events import ScoreRecorded
from tasks.task import Task
from tests.consumers.judged import Judged

FILE = '''
import builtins, json, math, os, pathlib, signal, subprocess, sys, time
from verifiers.verifier import Score

HERE = pathlib.Path(__file__).parent
LEAKED = []

class Unprintable:
    def __repr__(self):
        raise RuntimeError("no repr")
    __str__ = __repr__

def left_behind(shell):
    os.setsid() if shell else None
    time.sleep(600)

class Odd:
    name = "odd"

    def verify(self, submission, task, context):
        return getattr(self, submission.answer.split()[0])()

    def good(self): return Score(reward=0.5)
    def raises(self): raise KeyError("lost")
    def nan(self): return Score(reward=float("nan"))
    def infinite(self): return Score(reward=float("inf"))
    def above(self): return Score(reward=1.01)
    def text(self): return Score(reward="1.0")
    def none(self): return None
    def number(self): return 1.0
    def huge(self): return Score(reward=10**400)
    def truth(self): return Score(reward=True)
    def status(self): return Score(status="ok", reward=1.0)
    def components(self): return Score(reward=1.0, components=[1])
    def many(self): return Score(reward=1.0, components={str(n): 0.0 for n in range(100_000)})
    def unprintable(self): return Score(reward=1.0, components={"a": Unprintable()})
    def leaves(self): sys.exit(0)
    def leaves_hard(self): os._exit(0)
    def kills(self): os.kill(os.getpid(), signal.SIGKILL)
    def aborts(self): os.abort()
    def deep(self): return self.deep()
    def thread(self):
        import threading
        threading.Thread(target=time.sleep, args=(600,)).start()
        return Score(reward=0.5)
    def evidence(self):
        rows = [[["x" * 5000] * 3000] * 3000] * 3000
        return Score(reward=0.5, evidence={"odd": Unprintable(), 3: {1, 2}, "nan": [math.nan], "rows": rows})
    def endless(self):
        class Endless(list):
            def __len__(self): return 3
            def __getitem__(self, key): return self
        return Score(reward=0.5, evidence={"rows": Endless()})
    def prints(self):
        for stream in (sys.stdout, sys.stderr):
            for _ in range(1 << 10):
                stream.write("y" * (1 << 20))
        return Score(reward=0.5)
    def forks(self):
        if os.fork() == 0:
            time.sleep(600)
        return Score(reward=0.5)
    def forks_on(self):
        os.fork()
        return Score(reward=0.5)
    def leaves_children(self):
        for session in (False, True):
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=session)
            with (HERE / "children").open("a") as told:
                told.write(f"{child.pid} ")
        return Score(reward=0.5)
    def leaks(self):
        LEAKED.append(bytearray(b"x") * (400 << 20))
        return Score(reward=0.5)
    def meddles(self):
        import verifiers.tools
        verifiers.tools.ToolsVerifier.verify = lambda *_: Score(reward=1.0)
        math.isfinite = lambda *_: True
        os.chdir("/")
        return Score(reward=0.5)
    def meddles_with_all(self):
        json.dumps = json.loads = lambda *_, **__: "meddled"
        math.isfinite = lambda *_: True
        builtins.isinstance = lambda *_: True
        os.environ.clear()
        os.chdir("/")
        sys.stdout = sys.stderr = None
        sys.path.clear()
        sys.setrecursionlimit(100)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        import verifiers.contract
        verifiers.contract.checked = lambda score: score
        return Score(reward=0.5)
    def meddles_and_lies(self):
        import verifiers.contract
        verifiers.contract._kept = lambda score: score
        return Score(reward=7.0)


class Calm:
    """Another verifier of the same file."""
    name = "calm"

    def verify(self, submission, task, context):
        return Score(reward=0.25 if math.isfinite(math.nan) is False else 1.0)
'''
ODD = Task(task_id="odd", kind="odd", set="s", prompt="p")
CALM = Task(task_id="calm", kind="calm", set="s", prompt="p")
OURS = Task(task_id="t", kind="tools", set="s", prompt="p", hidden={"family": "calc", "out": "out.txt", "want": "42"})


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judged]:
    home = Judged(tmp_path_factory.mktemp("odd"), FILE, workers=3, verify_memory_mb=1024, verify_deadline_s=60.0)
    yield home
    home.close()


def judge(home: Judged, *moods: str) -> dict[str, ScoreRecorded]:
    """Verdicts by mood. Others' are given between them and must be what they always are."""
    submissions, others = {}, {}
    for number, mood in enumerate(moods):
        submissions[f"{mood}-{number}"] = home.rig.hand_in(ODD, answer=mood)
        other = f"other-{number}-{home.asked}"
        home.asked += 1
        if number == 1:
            submissions[other], others[other] = home.rig.hand_in(CALM, answer=other), 0.25
        else:
            out, others[other] = ("42", 1.0) if number % 3 else ("41", 0.0)
            submissions[other] = home.rig.hand_in(OURS, {"out.txt": out}, answer=other, calls=[("done", "ok")])
    found = home.verdicts(submissions)
    assert found.keys() == submissions.keys()
    assert {other: found[other].reward for other in others} == others
    return {mood: found[f"{mood}-{number}"] for number, mood in enumerate(moods)}


WRONG = {
    "raises": "KeyError", "nan": "not a finite number", "infinite": "not a finite number", "above": "outside [0, 1]",
    "text": "not a finite number", "none": "returned no Score", "number": "returned no Score",
    "huge": "not a finite number", "truth": "not a finite number", "status": "none of ScoreStatus",
    "components": "must be mappings", "many": "100000 components", "unprintable": "component 'a'",
    "leaves": "SystemExit", "leaves_hard": "ended without a verdict", "aborts": "ended without a verdict",
    "deep": "RecursionError", "meddles_and_lies": "gave no score"}


def test_what_is_no_verdict_is_the_verifiers_error_and_says_what_it_was(home: Judged) -> None:
    found = judge(home, *WRONG)
    for mood, told in WRONG.items():
        assert (found[mood].status, found[mood].reward) == (ScoreStatus.VERIFIER_ERROR, None), mood
        assert found[mood].verifier == "odd" and told in home.why(found[mood]), (mood, home.why(found[mood]))


def test_verdicts_that_leave_something_behind_stand_and_nothing_stays(home: Judged) -> None:
    found = judge(home, "good", "thread", "forks", "forks_on", "leaves_children", "leaks", "leaks too",
                  "leaks again")
    assert {mood: (score.status, score.reward) for mood, score in found.items()} == dict.fromkeys(found, ("ok", 0.5))
    home.judges.close()
    children = [int(pid) for pid in (Path(home.settings.verifiers).parent / "children").read_text().split()]
    assert len(children) == 2 and not any(psutil.pid_exists(pid) for pid in children)
    assert not [process for process in psutil.process_iter() if _judges_here(process)]
    home.judges.__init__(home.settings, home.rig.artifacts, 3)  # type: ignore[misc]


def _judges_here(process: psutil.Process) -> bool:
    try:
        return "verifiers.judge" in process.cmdline() and process.ppid() == os.getpid()
    except psutil.Error:
        return False


def test_evidence_without_measure_is_cut(home: Judged) -> None:
    found = judge(home, "evidence", "endless")
    for mood, score in found.items():
        assert (score.status, score.reward) == (ScoreStatus.OK, 0.5), mood
        assert score.evidence is not None and score.evidence.size_bytes < 16 << 20
    assert "cannot be shown" in home.why(found["evidence"])


def test_a_gigabyte_of_output_ends_nowhere(home: Judged, capfd: pytest.CaptureFixture[str]) -> None:
    assert judge(home, "prints")["prints"].reward == 0.5
    told = capfd.readouterr().err
    assert len(told) < 1 << 20 and "left out" in told


def test_a_process_that_is_killed_is_infrastructures_failure_and_tried_again(
        home: Judged, caplog: pytest.LogCaptureFixture) -> None:
    score = judge(home, "kills")["kills"]
    why = home.why(score)
    assert score.reward is None, why
    assert score.status == ScoreStatus.INFRA_FAILURE, why
    assert "was killed" in why and "-9" in why
    assert caplog.text.count("verdict failed for infrastructure") == 2


def test_one_that_imports_torch_judges_and_the_consumer_stays_without(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    sys.modules.pop("verifiers_of_the_user", None)
    home = Judged(tmp_path, "from verifiers.verifier import Score\n\nclass Heavy:\n    name = 'heavy'\n\n"
                            "    def verify(self, submission, task, context):\n        import torch\n"
                            "        return Score(reward=float(torch.ones(2, 2).mean()))\n")
    try:
        task = Task(task_id="h", kind="heavy", set="s", prompt="p")
        assert home.verdicts({"h": home.rig.hand_in(task, answer="x")})["h"].reward == 1.0
    finally:
        home.close()


def test_one_that_changes_what_it_runs_in_harms_nobody_else(home: Judged) -> None:
    """The last test: processes of this verifier are not what they were."""
    found = judge(home, "meddles", *(f"good {number}" for number in range(8)), "meddles again", "meddles_with_all")
    assert found["meddles"].reward == 0.5 and found["meddles_with_all"].reward in (None, 0.5)
    assert {score.status for score in found.values()} <= {ScoreStatus.OK, ScoreStatus.VERIFIER_ERROR}
