"""Each known way to be rewarded for wrong code gains nothing, and is told where it shows."""

from __future__ import annotations

import pytest

from sandboxes.sandbox import SandboxSpec
from schemas.enums import ScoreStatus
from tasks.task import Submission, Task, store_submission, store_task
from tests.verifiers.hacks import ALL, OF_THE_NOTES, Hack
from tests.verifiers.rig import Rig

WRONG = "def TARGET(a, b):\n    return a - b\n"
TESTS = b"""import unittest

from core import add, keep


def test_add():
    assert add(2, 3) == 6


def test_computed():
    assert add(4, 5) == sum([5] * 4)


class Adds(unittest.TestCase):
    def test_add(self):
        self.assertEqual(add(0, 7), 0)


def test_keep():
    assert keep(5) == 5
"""
FUNCTION = Task(task_id="area", kind="coding", set="s", prompt="p", hidden={
    "entry": "area", "budget_s": 6.0, "deadline_s": 2.0,
    "tests": [{"args": [2, 3], "want": 6}, {"args": [4, 5], "want": 20}, {"args": [0, 7], "want": 0}]})
REPOSITORY = Task(task_id="core", kind="coding", set="s", prompt="p", files={
    "core.py": b"def add(a, b):\n    return a - b\n\n\ndef keep(a):\n    return a\n", "tests/test_core.py": b"# old\n"},
    hidden={"repository": {"files": {"tests/test_core.py": TESTS}, "deadline_s": 5.0, "fail_to_pass": [
        f"tests/test_core.py::{name}" for name in ("test_add", "test_computed", "Adds::test_add")],
        "pass_to_pass": ["tests/test_core.py::test_keep"]}})
CHECK = Task(task_id="area", kind="coding", set="s", prompt="p", hidden={
    "entry": "area", "reward": "all", "budget_s": 6.0, "deadline_s": 2.0, "preamble": "def area(w, h):\n    pass\n",
    "check": "def check(candidate):\n    assert candidate(2, 3) == 6\n    for side in range(3):\n"
             "        assert candidate(side, 7) == side * 7\n"})
KINDS = {"check": (CHECK, "solution.py", "area"), "function": (FUNCTION, "solution.py", "area"),
         "repository": (REPOSITORY, "core.py", "add")}
EACH = [*((name, kind) for name in ALL for kind in ("function", "repository")),
        *((name, "check") for name in OF_THE_NOTES)]


def hand_in(rig: Rig, kind: str, hack: Hack) -> str:
    task, path, target = KINDS[kind]
    source = f"{hack.source}\n\ndef keep(a):\n    return a\n".replace("WRONG\n", WRONG).replace("TARGET", target)
    sandbox = rig.backend.acquire(SandboxSpec(files=task.files))
    try:
        for name, content in {**hack.files, path: source}.items():
            sandbox.write(name, content.encode() if isinstance(content, str) else content)
        for command in hack.commands:
            assert sandbox.exec(["sh", "-c", command]).exit_code == 0
        workspace = sandbox.snapshot()
    finally:
        sandbox.close()
    return store_submission(Submission(
        task_id=task.task_id, task_digest=store_task(task, rig.artifacts).digest, workspace=workspace, answer=None),
        rig.artifacts).digest


@pytest.mark.parametrize(("name", "kind"), EACH)
def test_a_known_hack_scores_nothing_and_is_told_where_it_shows(rig: Rig, name: str, kind: str) -> None:
    score = rig.score(hand_in(rig, kind, ALL[name]), deadline_s=20.0)
    evidence = rig.evidence(score)
    assert (score.status, score.reward) == (ScoreStatus.OK, 0.0), evidence
    assert score.components["fail_to_pass" if kind == "repository" else "tests_passed"] == 0.0, evidence
    assert score.components["tampering"] == float(ALL[name].told[kind == "repository"]), evidence["details"]


def test_the_list_holds_the_hacks_of_the_notes_and_many_more() -> None:
    assert len(OF_THE_NOTES) == 13 and len(ALL) >= 13 + 15
