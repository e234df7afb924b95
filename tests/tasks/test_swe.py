"""SWE-style rows: the seed has no later history, the reference resolves, the seed does not."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import TaskError
from tasks.importers import load_tasks
from tests.verifiers.rig import Rig

OLD, NEW = "def add(a, b):\n    return a - b\n", "def add(a, b):\n    return a + b\n"
PATCH = ("diff --git a/shop.py b/shop.py\n--- a/shop.py\n+++ b/shop.py\n@@ -1,2 +1,2 @@\n def add(a, b):\n"
         "-    return a - b\n+    return a + b\n")
TEST_PATCH = ("diff --git a/tests/test_shop.py b/tests/test_shop.py\n--- a/tests/test_shop.py\n"
              "+++ b/tests/test_shop.py\n@@ -1,5 +1,9 @@\n from shop import add\n \n \n def test_zero():\n"
              "     assert add(0, 0) == 0\n+\n+\n+def test_add():\n+    assert add(1, 2) == 3\n")
TEST = "from shop import add\n\n\ndef test_zero():\n    assert add(0, 0) == 0\n"
IDS = {"FAIL_TO_PASS": json.dumps(["tests/test_shop.py::test_add"]), "PASS_TO_PASS": ["tests/test_shop.py::test_zero"]}


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    rig = Rig(tmp_path_factory.mktemp("home"))
    yield rig
    rig.close()


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=e@example.org", *words], cwd=folder,
                          check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def bench(tmp_path: Path) -> dict[str, Any]:
    """A bundle with the solution in its later history, and the row of a task before it."""
    work = tmp_path / "work"
    (work / "tests").mkdir(parents=True)
    git(work, "init", "-q", "-b", "main")
    (work / "shop.py").write_text(OLD)
    (work / "tests" / "test_shop.py").write_text(TEST)
    git(work, "add", ".")
    git(work, "commit", "-qm", "old")
    base = git(work, "rev-parse", "HEAD")
    (work / "shop.py").write_text(NEW + "# the secret of the future\n")
    git(work, "commit", "-qam", "new")
    git(work, "bundle", "create", "-q", str(tmp_path / "own__shop.bundle"), "main")
    return {"instance_id": "own__shop-1", "repo": "own/shop", "base_commit": base, "problem_statement": "add adds",
            "patch": PATCH, "test_patch": TEST_PATCH, **IDS}


def rows(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_row_with_a_bundle_is_resolved_by_its_reference_alone(
        rig: Rig, tmp_path: Path, bench: dict[str, Any]) -> None:
    task, = load_tasks("swe", rows(tmp_path, bench))
    assert task.files == {"shop.py": OLD.encode(), "tests/test_shop.py": TEST.encode()}
    assert not any(b"secret of the future" in data for data in task.files.values())
    assert rig.score(rig.play(task, task.reference)).reward == 1.0
    seed = rig.score(rig.hand_in(task, {}))
    assert (seed.reward, seed.components["fail_to_pass"], seed.components["pass_to_pass"]) == (0.0, 0.0, 1.0)


def test_a_patch_that_makes_the_bug_is_reversed(rig: Rig, tmp_path: Path) -> None:
    folder = tmp_path / "own__shop" / "tests"
    folder.mkdir(parents=True)
    (folder.parent / "shop.py").write_text(OLD.replace("-", "+"))
    (folder / "test_shop.py").write_text(TEST + "\n\ndef test_add():\n    assert add(1, 2) == 3\n")
    bug = PATCH.replace("-    return a - b\n+    return a + b", "-    return a + b\n+    return a - b")
    task, = load_tasks("swe", rows(tmp_path, {"instance_id": "x", "repo": "own/shop", "patch": bug, **IDS}))
    assert task.files["shop.py"] == OLD.encode()
    assert rig.score(rig.play(task, task.reference)).reward == 1.0
    assert rig.score(rig.hand_in(task, {})).reward == 0.0


@pytest.mark.parametrize(("change", "place"), [
    ({"patch": "nonsense"}, "$.patch"), ({"FAIL_TO_PASS": "nonsense"}, "$.FAIL_TO_PASS"),
    ({"FAIL_TO_PASS": []}, "$.FAIL"),
    ({"repo": "own/other"}, "$.repo"), ({"base_commit": "0" * 40}, "$.base_commit"),
    ({"FAIL_TO_PASS": ["tests/no.py::test"]}, "tests/no.py")])
def test_a_broken_row_is_refused(tmp_path: Path, bench: dict[str, Any], change: dict[str, Any], place: str) -> None:
    with pytest.raises(TaskError) as refused:
        load_tasks("swe", rows(tmp_path, {**bench, **change}))
    assert "rows.jsonl:1" in str(refused.value) and place in str(refused.value)
