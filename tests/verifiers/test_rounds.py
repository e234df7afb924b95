"""What a check asks first hangs on no candidate, so the next verdict on its task does not ask again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from sandboxes.sandbox import Backend, Sandbox, SandboxSpec
from schemas.events import ScoreRecorded
from tasks.task import Task
from tests.verifiers.rig import Rig
from verifiers import bridge
from verifiers.scoring import Request, judge

TASK = Task(task_id="area", kind="coding", set="s", prompt="p", hidden={
    "entry": "area", "reward": "rate", "check": "def check(candidate):\n    for side in range(3):\n"
                                                "        assert candidate(side, 7) == side * 7\n"})
RIGHT, WRONG, BROKEN = ({"solution.py": f"def area(w, h):\n    return {body}\n"} for body in ("w * h", "w + h", "("))


class Counting:
    """A backend that counts the sandboxes that it gives."""

    def __init__(self, backend: Backend) -> None:
        self._backend, self.given = backend, 0
        self.name, self.isolates, self.capabilities = backend.name, backend.isolates, backend.capabilities

    def acquire(self, spec: SandboxSpec) -> Sandbox:
        self.given += 1
        return self._backend.acquire(spec)

    def identify(self, image: str) -> str:
        return self._backend.identify(image)

    def reap(self) -> int:
        return 0

    def close(self) -> None: ...


@pytest.fixture(autouse=True)
def forgetful() -> Iterator[None]:
    bridge._first.clear()
    yield
    bridge._first.clear()


def score(rig: Rig, files: dict[str, str], task: Task = TASK) -> tuple[ScoreRecorded, int]:
    backend = Counting(rig.backend)
    given = judge(Request(submission=rig.hand_in(task, files), episode_id="e", run_id="r"), rig.artifacts, backend)
    return given, backend.given


def test_the_second_verdict_on_a_task_says_what_the_first_would(rig: Rig) -> None:
    def all_of_them(forget: bool) -> list[Any]:
        found = []
        for files in (RIGHT, WRONG, BROKEN):
            if forget:
                bridge._first.clear()
            given, _ = score(rig, files)
            found.append((given.reward, given.components, given.evidence))
        return found

    fresh = all_of_them(forget=True)
    assert [reward for reward, _, _ in fresh] == [1.0, 0.0, 0.0]
    assert all_of_them(forget=False) == fresh


def test_a_check_that_was_asked_before_needs_no_sandbox_until_there_are_values(rig: Rig) -> None:
    assert score(rig, BROKEN)[1] == 2
    assert score(rig, BROKEN)[1] == 1
    assert score(rig, RIGHT)[1] == 2


def test_another_check_seed_or_preamble_is_asked_for_itself(rig: Rig) -> None:
    score(rig, RIGHT)
    for change in ({"preamble": "import os\n"}, {"check": TASK.hidden["check"].replace("range(3)", "range(4)")}):
        other = msgspec.structs.replace(TASK, hidden={**TASK.hidden, **change})
        before = len(bridge._first)
        given, _ = score(rig, RIGHT, other)
        assert given.reward == 1.0 and len(bridge._first) == before + 1
        assert rig.evidence(given)["details"]["calls"] == (4 if "check" in change else 3)
