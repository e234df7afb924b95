"""Verdicts in processes of their own: what a submission does to its verifier ends that process and nothing else."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import psutil
import pytest

from schemas.enums import ScoreStatus
from schemas.errors import ConfigError, UserError
from schemas.events import ScoreRecorded
from tasks.task import Task
from tests.verifiers.rig import Rig
from verifiers import files, registry
from verifiers.judges import Judges
from verifiers.scoring import Request
from verifiers.verdicts import Verdict, Verdicts, key_of

FILE = '''
import ctypes, os, pathlib, signal, subprocess, sys, time
from verifiers.verifier import Score

COUNT = pathlib.Path(__file__).with_suffix(".count")

class Moody:
    """Does what the answer says."""
    name = "moody"

    def verify(self, submission, task, context):
        with COUNT.open("a") as told:
            told.write("x")
        did = submission.answer or ""
        if did == "loop":
            sandbox = context.open_sandbox(submission, task)
            COUNT.with_suffix(".open").write_text("open")
            while True:
                pass
        if did == "sleep":
            COUNT.with_suffix(".sleep").write_text(str(os.getpid()))
            time.sleep(600)
        if did == "strays":
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
            COUNT.with_suffix(".stray").write_text(str(child.pid))
            time.sleep(600)
        if did == "memory":
            bytearray(8 << 30)
        if did == "crash":
            ctypes.string_at(0)
        if did == "exit":
            os._exit(0)
        if did == "nan":
            return Score(reward=float("nan"))
        if did == "raise":
            raise ZeroDivisionError("moody")
        return Score(reward=0.25, evidence={"answer": did})
'''
TASK = Task(task_id="t", kind="moods", set="s", prompt="p", verifier="moody")


class House:
    """A home with a verifier file, and judges for it."""

    def __init__(self, rig: Rig, folder: Path) -> None:
        self.rig, self.file = rig, folder / "moody verifier.py"
        self.file.write_text(FILE)
        self.settings = msgspec.structs.replace(rig.settings, verifiers=str(self.file))
        self.judges = Judges(self.settings, rig.artifacts, 2)

    def score(self, answer: str, deadline_s: float = 30.0, episode: str = "episode") -> ScoreRecorded:
        registry.use_files(self.settings.verifiers)
        submission = self.rig.hand_in(TASK, answer=answer)
        return self.judges.score(Request(submission=submission, episode_id=episode, run_id="run",
                                         deadline_s=deadline_s))

    def verdicts_given(self) -> int:
        return len(self.file.with_suffix(".count").read_text())


@pytest.fixture
def house(rig: Rig, tmp_path: Path) -> Iterator[House]:
    house = House(rig, tmp_path)
    yield house
    house.judges.close()
    registry.use_files("")


def until(condition: Callable[[], bool], limit_s: float = 20.0) -> None:
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.01)


def test_a_verifier_of_a_file_judges_and_its_digest_is_the_files(house: House) -> None:
    score = house.score("good")
    assert (score.status, score.reward, score.verifier) == (ScoreStatus.OK, 0.25, "moody")
    before = score.verifier_digest
    house.file.write_text(FILE + "# edited\n")
    assert registry.use_files(house.settings.verifiers) == ["moody"]
    assert registry.get_verifier("moody").digest != before


def test_a_helper_of_a_verifiers_file_is_a_part_of_its_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    (tmp_path / "own_package").mkdir()
    for name, content in (("own_helper.py", "from own_package import deeper\n"), ("own_package/__init__.py", ""),
                          ("own_package/deeper.py", "from . import deepest\n"), ("own_package/deepest.py", "X = 1\n"),
                          ("own_lazy.py", ""), ("own_other.py", "")):
        (tmp_path / name).write_text(content)
    path = tmp_path / "mine.py"
    path.write_text("import json, msgspec, own_helper\nfrom verifiers.verifier import Score\n\nclass Mine:\n"
                    "    name = 'mine'\n    def verify(self, submission, task, context):\n        import own_lazy\n")

    def seen() -> str:
        importlib.invalidate_caches()
        return files.load(path)["mine"].digest

    digests = [seen()]
    for changed in ("own_helper.py", "own_package/__init__.py", "own_package/deeper.py", "own_package/deepest.py",
                    "own_lazy.py", "mine.py"):
        assert seen() == digests[-1]
        (tmp_path / changed).write_text((tmp_path / changed).read_text() + "# changed\n")
        digests.append(seen())
    assert len(set(digests)) == len(digests)
    (tmp_path / "own_other.py").write_text("# changed\n")
    assert seen() == digests[-1]


def test_a_verdict_given_before_is_given_again_without_its_verifier(house: House) -> None:
    first, second = house.score("once", episode="one"), house.score("once", episode="two")
    assert house.verdicts_given() == 1
    assert (first.reward, first.components, first.evidence) == (second.reward, second.components, second.evidence)
    assert first.score_id != second.score_id and second.episode_id == "two"
    house.score("twice")
    assert house.verdicts_given() == 2
    with Judges(house.settings, house.rig.artifacts, cached=False) as unheard:
        house.judges, kept = unheard, house.judges
        house.score("once")
        house.judges = kept
    assert house.verdicts_given() == 3


def test_no_failed_verdict_is_remembered(house: House) -> None:
    assert [house.score("raise").status for _ in range(2)] == [ScoreStatus.VERIFIER_ERROR] * 2
    assert house.verdicts_given() == 2


@pytest.mark.parametrize("did", ["loop", "sleep"])
def test_a_verifier_over_its_deadline_is_ended_with_its_sandboxes_and_is_no_zero(house: House, did: str) -> None:
    began = time.monotonic()
    score = house.score(did, deadline_s=0.5)
    assert time.monotonic() - began < 20
    assert (score.status, score.reward) == (ScoreStatus.VERIFIER_ERROR, None)
    assert "deadline" in house.rig.evidence(score)["details"]["what"]
    assert house.score("good").reward == 0.25, "the next verdict is given as if nothing had been"


def test_what_a_verifier_started_ends_with_it_wherever_it_went(house: House) -> None:
    assert house.score("strays", deadline_s=3.0).status == ScoreStatus.VERIFIER_ERROR
    pid = int(house.file.with_suffix(".stray").read_text())
    until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


@pytest.mark.parametrize(("did", "told"), [
    ("crash", "ended without a verdict"), ("exit", "ended without a verdict"), ("memory", "the verifier failed"),
    ("raise", "the verifier failed"), ("nan", "not a finite number")])
def test_what_a_verifier_does_to_itself_is_its_error(house: House, did: str, told: str) -> None:
    score = house.score(did)
    assert (score.status, score.reward, score.verifier) == (ScoreStatus.VERIFIER_ERROR, None, "moody")
    assert told in house.rig.evidence(score)["details"]["what"]
    assert house.score("good").reward == 0.25


def test_a_verdict_that_was_killed_from_outside_is_infrastructures_failure(house: House) -> None:
    told = house.file.with_suffix(".sleep")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(house.score, "sleep")
        until(lambda: told.exists() and bool(told.read_text()))
        os.kill(int(told.read_text()), signal.SIGKILL)
        score = waiting.result(30)
    assert (score.status, score.reward) == (ScoreStatus.INFRA_FAILURE, None)
    assert "killed" in house.rig.evidence(score)["details"]["what"]


def test_verdicts_are_given_side_by_side(house: House) -> None:
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(house.score, "sleep", 5.0)
        until(house.file.with_suffix(".sleep").exists)
        assert house.score("good").reward == 0.25
        assert not slow.done()
        assert slow.result().status == ScoreStatus.VERIFIER_ERROR


def test_processes_end_with_their_owner(house: House) -> None:
    house.score("good")
    children = [child for child in psutil.Process().children() if "verifiers.judge" in child.cmdline()]
    assert len(children) == 1
    house.judges.close()
    assert not children[0].is_running()
    house.judges = Judges(house.settings, house.rig.artifacts)


def test_a_process_outlives_the_thread_that_asked_first(house: House) -> None:
    thread = threading.Thread(target=house.score, args=("good",))
    thread.start()
    thread.join()
    assert house.score("other").reward == 0.25
    assert sum("verifiers.judge" in child.cmdline() for child in psutil.Process().children()) == 1


@pytest.mark.parametrize(("content", "told"), [
    ("x = 1\n", "no verifier in this file"), ("def broken(:\n", "does not load"), ("1 / 0\n", "ZeroDivisionError")])
def test_a_file_without_a_verifier_is_told_before_anything_is_judged(house: House, tmp_path: Path, content: str,
                                                                      told: str) -> None:
    path = tmp_path / "bad.py"
    path.write_text(content)
    with pytest.raises(ConfigError, match=told):
        files.load(path)
    settings = msgspec.structs.replace(house.settings, verifiers=str(path))
    with Judges(settings, house.rig.artifacts) as judges, pytest.raises(UserError):
        judges.score(Request(submission=house.rig.hand_in(TASK), episode_id="e", run_id="r"))


def test_a_damaged_cache_is_thrown_away(tmp_path: Path, rig: Rig) -> None:
    path, key = tmp_path / "verdicts.db", key_of("sha256:1", "sha256:2", 0, True)
    verdict = Verdict(reward=0.5, components={"a": 1.0}, evidence=rig.artifacts.put(b"why"))
    path.write_bytes(b"not a database" * 500)
    cache = Verdicts(path)
    assert cache.get(key) is None
    cache.put(key, verdict)
    assert cache.get(key) == verdict
    assert key_of("sha256:1", "sha256:2", 1, True) != key and key_of("sha256:1", "sha256:2", 0, False) != key
    cache.close()
    assert Verdicts(tmp_path / "no folder" / "verdicts.db").get(key) is None
