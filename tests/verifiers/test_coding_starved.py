"""A submission that hangs, breaks or starves what judges it gets its 0 with evidence, never a verifier's error."""

from __future__ import annotations

import itertools
import os

import pytest

from schemas.enums import ScoreStatus
from tasks.task import Task
from tests.verifiers.rig import Rig

FUNCTION = Task(task_id="area", kind="coding", set="s", prompt="p", hidden={
    "entry": "area", "budget_s": 3.0, "deadline_s": 1.0,
    "tests": [{"args": [2, 3], "want": 6}, {"args": [4, 5], "want": 20}]})
CHECK = Task(task_id="area", kind="coding", set="s", prompt="p", hidden={
    "entry": "area", "budget_s": 3.0, "deadline_s": 1.0,
    "check": "def check(candidate):\n    assert candidate(2, 3) == 6\n    assert candidate(4, 5) == 20\n"})
REPOSITORY = Task(task_id="shop", kind="coding", set="s", prompt="p", files={"area.py": b"def area(w, h):\n    pass\n"},
                  hidden={"repository": {"files": {"tests/test_area.py": (
                      b"from area import area\n\n\ndef test_area():\n    assert area(2, 3) == 6\n")},
                      "fail_to_pass": ["tests/test_area.py::test_area"], "deadline_s": 4.0}})
PROGRAM = Task(task_id="area", kind="coding", set="s", prompt="p", hidden={"stdio": {
    "path": "area.py", "deadline_s": 1.0, "budget_s": 3.0, "tests": [{"input": "2 3", "output": "6"}] * 3}})
TASKS = {"function": (FUNCTION, "solution.py"), "check": (CHECK, "solution.py"), "repository": (REPOSITORY, "area.py"),
         "program": (PROGRAM, "area.py")}
DEEDS = {
    "hangs": "while True:\n    pass",
    "sleeps without signals": (
        "import signal, time\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\ntime.sleep(600)"),
    "forks for ever": "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass",
    "starts threads for ever": (
        "import threading, time\nwhile True:\n    try:\n"
        "        threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "    except RuntimeError:\n        pass"),
    "takes all memory": "data = [bytearray(1 << 24)]\nwhile True:\n    data.append(bytearray(1 << 24))",
    "stops itself": "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
    "kills all it can": "import os, signal\nos.kill(-1, signal.SIGKILL)",
    "closes every descriptor": "import os\nos.closerange(0, 4096)",
    "fills the disk": "with open('/tmp/full', 'wb') as file:\n    while True:\n        file.write(bytes(1 << 20))",
    "floods every descriptor": (
        "import os\nwhile True:\n    for one in range(1, 32):\n        try:\n"
        "            os.write(one, bytes(1 << 16))\n"
        "        except OSError:\n            pass"),
    "recurses in C": "import sys\nsys.setrecursionlimit(10**9)\ndef down():\n    repr(down()) or down()\ndown()",
}


EACH = [(kind, deed, when) for (deed, when), kind in zip(
    zip(DEEDS, itertools.cycle(("import", "call"))),
    ("repository", "repository", "repository", "function", "repository", "function", "check", "function", "program",
     "repository", "check"), strict=True)]
"""One of each; all pairs with HEADRACE_EVERY_PAIR=1."""
PAIRS = list(itertools.product(TASKS, DEEDS, ("import", "call"))) if os.environ.get("HEADRACE_EVERY_PAIR") else EACH


@pytest.mark.parametrize(("kind", "deed", "when"), PAIRS)
def test_a_policy_cannot_turn_its_zero_into_an_error_of_ours(rig: Rig, kind: str, deed: str, when: str) -> None:
    task, path = TASKS[kind]
    if when == "import":
        source = f"{DEEDS[deed]}\n\n\ndef area(w, h):\n    return 0\n"
    else:
        source = "def area(w, h):\n    " + DEEDS[deed].replace("\n", "\n    ") + "\n    return 0\n"
        source += "area(1, 2)\n" if kind == "program" else ""
    score = rig.score(rig.hand_in(task, {path: source}), deadline_s=20.0)
    assert (score.status, score.reward) == (ScoreStatus.OK, 0.0), rig.evidence(score)
    assert score.evidence is not None


STUCK = {
    "a loop that the value decides": ("n = candidate(1)\n    while n != 1:\n        n += 1", "-(10 ** 30)"),
    "memory that the value decides": ("n = candidate(1)\n    assert len([0] * n) == 1", "10 ** 10"),
    "an output that the value decides": ("print('x' * candidate(1))", "10 ** 8"),
    "a value that is too large to be passed on": (
        "one = candidate(1)\n    candidate([one] * 3)", "[0] * 150_000"),
    "no value to go through": ("for one in candidate(1):\n        assert one == 1", "[]"),
    "calls without end": ("n = candidate(1)\n    while n:\n        n = candidate(n)", "n + 1"),
}


@pytest.mark.parametrize("how", STUCK)
def test_a_value_that_keeps_a_check_from_its_end_is_the_candidates_failure(rig: Rig, how: str) -> None:
    check, value = STUCK[how]
    task = Task(task_id="t", kind="coding", set="s", prompt="p", hidden={
        "entry": "f", "budget_s": 2.0, "deadline_s": 1.0,
        "check": f"def check(candidate):\n    {check}\n    assert candidate(0) == 1\n"})
    score = rig.score(rig.hand_in(task, {"solution.py": f"def f(n):\n    return {value}\n"}))
    assert (score.status, score.reward) == (ScoreStatus.OK, 0.0), rig.evidence(score)
