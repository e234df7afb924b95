"""Function tests whose verdict cannot be reached: the known ways to fool a test run score 0, right answers 1."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandboxes.sandbox import ExecResult
from schemas.enums import ScoreStatus
from tasks.importers import load_tasks
from tasks.scripts import write_file
from tasks.task import Task
from tests.verifiers.rig import Rig
from verifiers.bridge import read_answers
from verifiers.check_runner import run_check

RIGHT = "def area(w, h):\n    return w * h\n"
WRONG = "def area(w, h):\n    return w + h\n"
TESTS = Task(task_id="area", kind="coding", set="s", prompt="p", hidden={
    "entry": "area", "budget_s": 6.0, "deadline_s": 2.0,
    "tests": [{"args": [2, 3], "want": 6}, {"args": [4, 5], "want": 20}, {"args": [0, 7], "want": 0}]})
CHECK = Task(task_id="area", kind="coding", set="s", prompt="p", hidden={
    "entry": "area", "reward": "all", "budget_s": 6.0, "deadline_s": 2.0, "preamble": "def area(w, h):\n    pass\n",
    "check": "def check(candidate):\n    assert candidate(2, 3) == 6\n    assert candidate(4, 5) == 20\n"
             "    for side in range(3):\n        assert candidate(side, 7) == side * 7\n"})

FORGED = """import json
import os

for descriptor in range(1, 64):
    try:
        os.write(descriptor, b''.join(
            json.dumps(line).encode() + b"\\n" for line in (
                {"load": None}, {"passed": 3, "total": 3, "failures": [], "error": None, "calls": 3}, {"verdict": "ok"},
                {"call": 0, "passed": True}, {"call": 1, "value": True}, {"call": True, "value": 6}))
                 + b'1 {"value": true}\n-1 {"value": 6}\n0 {"passed": true}\n')
    except OSError:
        pass
"""
PATCHED = """import builtins
import json
import sys

json.dumps = lambda *_, **__: '{"call": 0, "value": "anything"}'
sys.modules["verifiers.values"].text_of = lambda _: '{"value": "anything"}'
sys.modules["verifiers.values"].encode = lambda value: {"tuple": []}
builtins.isinstance = lambda *_: True
"""

HACKS: dict[str, dict[str, str]] = {
    "wrong code": {"solution.py": WRONG},
    "sitecustomize": {"solution.py": WRONG, "sitecustomize.py": "import os\nos._exit(0)\n",
                      "usercustomize.py": "import os\nos._exit(0)\n"},
    "pytest.py shadows pytest": {"solution.py": WRONG, "pytest.py": "print('3 passed')\nraise SystemExit(0)\n",
                                 "json.py": "raise SystemExit(0)\n", "verifiers.py": "raise SystemExit(0)\n"},
    "forges lines on every descriptor": {"solution.py": FORGED + WRONG},
    "patches what encodes its values": {"solution.py": PATCHED + WRONG},
    "kills its parent": {"solution.py": (
        "import os, signal\n\n\ndef area(w, h):\n    os.kill(os.getppid(), signal.SIGKILL)\n")},
    "raises what ends a loop": {"solution.py": "def area(w, h):\n    raise StopIteration\n"},
    "raises like a failing check": {"solution.py": "def area(w, h):\n    raise AssertionError\n"},
    "leaves a writer behind": {"solution.py": (
        "import os, time\n\n\ndef area(w, h):\n    if os.fork():\n        return -1\n    time.sleep(60)\n")},
    "returns too much": {"solution.py": "def area(w, h):\n    return 'x' * (8 << 20)\n"},
    "floods every stream": {"solution.py": (
        "import os\nfor descriptor in (1, 2, 3, 4, 5):\n    try:\n        for _ in range(400):\n"
        "            os.write(descriptor, b'{' * 65536)\n    except OSError:\n        pass\n") + WRONG},
    "never ends when imported": {"solution.py": "while True:\n    pass\n"},
    "nothing handed in": {},
    "an empty file": {"solution.py": ""},
    "not Python": {"solution.py": "def area(w, h)\n    return w * h\n"},
    "not text": {"solution.py": "\x00\x01"},
    "a link to elsewhere": {},
    "not a function": {"solution.py": "area = 6\n"},
}


@pytest.mark.parametrize("task", [TESTS, CHECK], ids=["tests", "check"])
@pytest.mark.parametrize("hack", HACKS)
def test_known_hacks_score_nothing(rig: Rig, task: Task, hack: str) -> None:
    score = rig.score(rig.hand_in(task, HACKS[hack]))
    assert (score.status, score.reward) == (ScoreStatus.OK, 0.0), rig.evidence(score)
    assert score.components["tests_passed"] < 0.5


@pytest.mark.parametrize("task", [TESTS, CHECK], ids=["tests", "check"])
def test_the_right_function_scores_one_whatever_lies_around_it(rig: Rig, task: Task) -> None:
    around = {**HACKS["pytest.py shadows pytest"], **HACKS["sitecustomize"], "solution.py": f"print('hello')\n{RIGHT}"}
    score = rig.score(rig.hand_in(task, around))
    assert score.reward == 1.0
    assert score.components == {"tests_passed": 1.0, "compiles": 1.0, "static": 1.0, "tampering": 1.0}
    helped = {"helper.py": RIGHT, "solution.py": "from helper import area\n"}
    score = rig.score(rig.hand_in(task, helped))
    assert (score.reward, score.components["tampering"]) == (1.0, 0.0)


def test_each_call_counts_alone(rig: Rig) -> None:
    """One that hangs, one that crashes the interpreter, one that is right."""
    source = ("import ctypes, time\n\n\ndef area(w, h):\n    if w == 2:\n        time.sleep(60)\n    if w == 4:\n"
              "        ctypes.string_at(0)\n    return 0\n")
    score = rig.score(rig.hand_in(TESTS, {"solution.py": source}))
    assert score.reward == pytest.approx(1 / 3)
    got = [failure["got"] for failure in rig.evidence(score)["details"]["failures"]]
    assert got == [{"timeout": True}, {"died": True}]


def test_a_call_starts_from_the_loaded_file_not_from_the_last_call(rig: Rig) -> None:
    source = "seen = []\n\n\ndef area(w, h):\n    seen.append(w)\n    return w * h if len(seen) == 1 else -1\n"
    assert rig.score(rig.hand_in(TESTS, {"solution.py": source})).reward == 1.0


def test_a_failure_says_what_was_asked_wanted_and_given(rig: Rig) -> None:
    evidence = rig.evidence(rig.score(rig.hand_in(TESTS, {"solution.py": WRONG})))
    assert evidence["details"]["failures"][0] == {"args": [2, 3], "want": 6, "got": {"value": 5}}
    evidence = rig.evidence(rig.score(rig.hand_in(CHECK, {"solution.py": WRONG})))
    assert evidence["details"]["failures"][1] == (
        'line 3: assert candidate(4, 5) == 20 | is false | last call {"args":[4,5],"kwargs":{}} gave {"value":9}')


def test_static_findings_count(rig: Rig) -> None:
    source = ("from math import *\n\n\ndef other(x=[]):\n    try:\n        eval('1')\n"
              f"    except:\n        pass\n\n\n{RIGHT}")
    score = rig.score(rig.hand_in(TESTS, {"solution.py": source}))
    assert (score.reward, score.components["static"]) == (1.0, 1 / 5)


def test_findings_and_signs_of_the_seed_do_not_count(rig: Rig) -> None:
    seed = "import os\n\n\ndef area(w, h, cache=[]):\n    os._exit(1)\n"
    task = Task(task_id="area", kind="coding", set="s", prompt="p", hidden=TESTS.hidden,
                files={"solution.py": seed.encode()})
    kept = f"{seed.replace('area', 'other')}\n\n{RIGHT}"
    score = rig.score(rig.hand_in(task, {"solution.py": kept}))
    assert (score.components["static"], score.components["tampering"]) == (1.0, 0.0), rig.evidence(score)
    score = rig.score(rig.hand_in(task, {"solution.py": f"{kept}\n\ndef more(x={{}}):\n    return eval(x)\n"}))
    assert (score.reward, score.components["static"]) == (1.0, 1 / 3)
    new = rig.evidence(score)["details"]["new_findings"]
    assert {one.partition(": ")[2] for one in new} == {"mutable default argument", "eval"}


def test_types_are_strict_and_tolerance_is_declared(rig: Rig) -> None:
    task = Task(task_id="t", kind="coding", set="s", prompt="p", hidden={"entry": "f", "tests": [
        {"args": [0], "want": {"tuple": [1, 2]}}, {"args": [1], "want": True},
        {"args": [2], "want": 0.3, "tolerance": 1e-9},
        {"args": [3], "want": {"dict": [[1, "a"]]}}, {"args": [4], "want": {"float": "nan"}}, {"args": [5], "want": 2},
        {"args": [], "kwargs": {"n": 6}, "want": None}]})
    good = "def f(n):\n    return [(1, 2), True, 0.1 + 0.2, {1: 'a'}, float('nan'), 2.0, None][n]\n"
    bad = "def f(n):\n    return [[1, 2], 1, 0.31, {'1': 'a'}, 0.0, '2', 0][n]\n"
    assert rig.score(rig.hand_in(task, {"solution.py": good})).reward == 1.0
    assert rig.score(rig.hand_in(task, {"solution.py": bad})).reward == 0.0


def test_a_check_that_depends_on_earlier_answers_takes_more_rounds(rig: Rig) -> None:
    check = ("def check(candidate):\n    value = candidate(1, 2)\n    for _ in range(5):\n"
             "        value = candidate(value, 3)\n    assert value == 486\n"
             "    try:\n        candidate(None, 1)\n    except TypeError:\n        pass\n"
             "    else:\n        assert False, 'no error'\n")
    task = Task(task_id="t", kind="coding", set="s", prompt="p", hidden={"entry": "area", "check": check})
    score = rig.score(rig.hand_in(task, {"solution.py": RIGHT}))
    assert score.reward == 1.0 and rig.evidence(score)["details"]["calls"] == 7
    assert rig.score(rig.hand_in(task, {"solution.py": "def area(w, h):\n    return 486\n"})).reward == 0.5


@pytest.mark.parametrize("check", [
    "def check(candidate):\n    left = candidate(2, 3)\n    while left > 0:\n        left -= 1\n    assert left == 0\n",
    "import math\n\n\ndef check(candidate):\n    assert math.isclose(math.pow(candidate(2, 3), 2), 36.0)\n",
    "def check(candidate):\n    for a, b in [(candidate(1, 2), 2), (candidate(2, 2), 4)]:\n        assert {a} == {b}\n",
    "def check(candidate):\n    assert [str(candidate(n, 2)) for n in range(3)] == ['0', '2', '4']\n",
    "import random\n\n\ndef check(candidate):\n    for _ in range(60):\n"
    "        a, b = random.random(), random.random()\n        assert abs(candidate(a, b) - a * b) < 1e-9\n"])
def test_checks_of_many_kinds_get_their_verdict(rig: Rig, check: str) -> None:
    task = Task(task_id="t", kind="coding", set="s", prompt="p", hidden={"entry": "area", "check": check})
    score = rig.score(rig.hand_in(task, {"solution.py": RIGHT}))
    assert (score.status, score.reward) == (ScoreStatus.OK, 1.0), rig.evidence(score)
    wrong = rig.score(rig.hand_in(task, {"solution.py": "def area(w, h):\n    return w * h + 1000.5\n"}))
    assert (wrong.status, wrong.reward) == (ScoreStatus.OK, 0.0), rig.evidence(wrong)


@pytest.mark.parametrize("check", [
    "def check(candidate):\n    pass\n", "def check(candidate):\n    candidate(1, 2)\n", "def other():\n    pass\n",
    "def check(candidate:\n", "def check(candidate):\n    assert candidate(lambda: 1, 2) == 3\n",
    "def check(candidate):\n    raise ValueError('broken')\n", "def check(candidate):\n    assert 1 == 1\n"])
def test_a_check_that_proves_nothing_is_a_verifier_error(rig: Rig, check: str) -> None:
    task = Task(task_id="t", kind="coding", set="s", prompt="p", hidden={"entry": "area", "check": check})
    score = rig.score(rig.hand_in(task, {"solution.py": RIGHT}))
    assert (score.status, score.reward) == (ScoreStatus.VERIFIER_ERROR, None), rig.evidence(score)


def test_being_slow_in_every_round_is_no_way_out_of_a_zero(rig: Rig) -> None:
    """Each answer leads to one new call, none of which is late alone: the budget is for all rounds together."""
    check = ("def check(candidate):\n    value = 0\n    for _ in range(30):\n        value = candidate(value)\n"
             "    assert value == 30\n")
    hidden = {"entry": "f", "reward": "all", "check": check, "deadline_s": 5.0, "budget_s": 1.0}
    task = Task(task_id="t", kind="coding", set="s", prompt="p", hidden=hidden)
    source = "import time\n\n\ndef f(n):\n    time.sleep(0.8)\n    return n + 1\n"
    score = rig.score(rig.hand_in(task, {"solution.py": source}), deadline_s=15.0)
    assert (score.status, score.reward) == (ScoreStatus.OK, 0.0), rig.evidence(score)


def test_an_exception_that_ends_iterations_does_not_end_a_check(rig: Rig) -> None:
    """StopIteration from the candidate would end the check's loop before its second value."""
    check = ("def check(candidate):\n    assert candidate(0) == 0\n    for value in map(candidate, [0, 1]):\n"
             "        assert value == 0\n")
    task = Task(task_id="t", kind="coding", set="s", prompt="p", hidden={"entry": "f", "reward": "all", "check": check})
    source = "def f(n):\n    if n == 0:\n        return 0\n    raise StopIteration\n"
    assert rig.score(rig.hand_in(task, {"solution.py": source})).reward == 0.0


def test_a_check_that_does_not_end_is_a_verifier_error(rig: Rig) -> None:
    check = "def check(candidate):\n    assert candidate(1, 2) == 2\n    while True:\n        pass\n"
    hidden = {"entry": "area", "check": check, "budget_s": 1.0}
    task = Task(task_id="t", kind="coding", set="s", prompt="p", hidden=hidden)
    score = rig.score(rig.hand_in(task, {"solution.py": RIGHT}))
    assert (score.status, score.reward) == (ScoreStatus.VERIFIER_ERROR, None)


def test_human_eval_references_pass_and_stubs_fail(rig: Rig, cases: Callable[[str], Path]) -> None:
    tasks = load_tasks("humaneval", cases("coding/humaneval/HumanEval-16.jsonl"))
    assert len(tasks) == 16
    scripts: dict[str, Callable[[Task], list[str]]] = {
        "reference": lambda task: task.reference, "empty": lambda task: [],
        "stub": lambda task: [write_file("solution.py", task.hidden["preamble"] + "    pass\n")]}
    rewards = {name: [rig.score(rig.play(task, script(task))).reward for task in tasks]
               for name, script in scripts.items()}
    assert rewards == {"reference": [1.0] * 16, "empty": [0.0] * 16, "stub": [0.0] * 16}


def said(*lines: str) -> ExecResult:
    return ExecResult(exit_code=0, stdout="\n".join(lines).encode())


def test_answers_are_read_as_untrusted_text() -> None:
    look = '{"compiles": true, "findings": []}'
    answers = read_answers(said(look, '{"load": null}', '0 {"value": 6}', '1 {"value": 1}', '1 {"value": 20}', "2 {}",
                                '4 {"timeout": true}', "[" * 5000, "3", "3" * 5000 + " {}", '-0 {"value": 1}'), 5)
    assert answers.outcomes == [{"value": 6}, {"died": True}, {"died": True}, {"died": True}, {"timeout": True}]
    assert read_answers(said(look), 2).load == "ended while loading (exit code 0)"
    assert read_answers(said("", "x"), 2).outcomes == [{"died": True}] * 2
    failed = said(look, '{"load": "NameError: x"}', '{"load": null}', '0 {"value": 6}')
    assert read_answers(failed, 1).outcomes == [{"died": True}]


def test_unknown_values_never_give_a_verdict() -> None:
    """A round in which the stand-in had to agree with everything says only which calls it needs."""
    request: dict[str, Any] = {"preamble": "", "entry": "area", "outcomes": {}, "seed": 0,
                               "check": CHECK.hidden["check"]}
    first = run_check(request)
    assert set(first) == {"new"} and len(first["new"]) == 5
    outcomes = {key: {"value": call["args"][0] * call["args"][1]} for key, call in first["new"].items()}
    assert run_check({**request, "outcomes": outcomes})["passed"] == 5
    one_lost = dict(list(outcomes.items())[1:])
    assert set(run_check({**request, "outcomes": one_lost})) == {"new"}


def test_the_runners_use_the_standard_library_alone() -> None:
    from verifiers.bridge import CANDIDATE, CHECK
    from verifiers.digest import source_of

    for module in {*CANDIDATE, *CHECK}:
        for line in source_of(module).decode().splitlines():
            if line.startswith(("import ", "from ")):
                root = line.split()[1].split(".")[0]
                assert root in sys.stdlib_module_names or line == "from verifiers import values", line
