"""Built-in sets: references score 1, empty episodes 0, wrong scripts less, partial ones in between."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from artifacts.store import DirectoryStore
from tasks.sets import builtin_sets
from tasks.task import Task, load_task, store_task
from tests.verifiers.rig import Rig

FAMILIES = ("coding", "documents", "scene", "terminal")


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    rig = Rig(tmp_path_factory.mktemp("home"))
    yield rig
    rig.close()


def tasks_of(kind: str) -> list[Task]:
    return builtin_sets()[kind]()


def test_sets_have_the_promised_sizes_and_repeat() -> None:
    scene = 9 if shutil.which("openscad") else 8
    sizes = {name: len(make()) for name, make in builtin_sets().items()}
    assert sizes == {"tools": 64, "tools-heldout": 256, "coding": 8, "documents": 8, "scene": scene, "math": 36,
                     "terminal": 6}
    assert all(make() == make() for make in builtin_sets().values())


@pytest.mark.parametrize("kind", FAMILIES)
def test_tasks_are_data_and_hide_what_the_verifier_knows(kind: str, artifacts: DirectoryStore) -> None:
    tasks = tasks_of(kind)
    assert len({task.task_id for task in tasks}) == len(tasks)
    for task in tasks:
        registered = store_task(task, artifacts)
        assert load_task(registered.digest, artifacts) == task and registered.verifier == kind
        assert set(task.variants) == {"wrong", "partial"} and task.set == task.kind == kind
        assert str(task.hidden.get("tests", "no tests")) not in task.prompt


@pytest.mark.parametrize(("kind", "index"), [
    (kind, index) for kind in FAMILIES for index in range(len(tasks_of(kind)))])
def test_scripts_have_the_rewards_they_promise(rig: Rig, kind: str, index: int) -> None:
    task = tasks_of(kind)[index]
    scripts = {"reference": task.reference, "empty": [], **task.variants}
    rewards = {name: rig.score(rig.play(task, turns)).reward for name, turns in scripts.items()}
    assert rewards["reference"] == 1.0
    assert rewards["empty"] == rewards["wrong"] == 0.0
    assert rewards["partial"] is not None and 0.0 < rewards["partial"] < 1.0
