"""Tool tasks: references solve them, nothing held out is trained on, and the tools check their arguments strictly."""

from __future__ import annotations

import random
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from schemas.errors import TaskError
from tasks import toolbox_path
from tasks.task import Task
from tasks.tools import FAMILIES, heldout_tasks, tool_task, training_tasks


def use(workspace: Path, line: str) -> tuple[int, str]:
    """One line as the episode loop runs it: the first word is the tool, the rest splits at single spaces."""
    name, *arguments = line.split(" ")
    ran = subprocess.run([toolbox_path() / name, *arguments], cwd=workspace, capture_output=True, text=True, timeout=10)
    return ran.returncode, ran.stdout.removesuffix("\n")


def solve(task: Task, workspace: Path) -> list[str]:
    for name, content in task.files.items():
        (workspace / name).write_bytes(content)
    return [output for line in task.reference[:-1] for code, output in [use(workspace, line)] if code == 0]


def mesh(path: Path) -> tuple[list[tuple[float, ...]], list[tuple[int, ...]]]:
    rows = [line.split() for line in path.read_text().splitlines()]
    return ([tuple(map(float, row[1:])) for row in rows if row[0] == "v"],
            [tuple(int(index) - 1 for index in row[1:]) for row in rows if row[0] == "f"])


def signed_volume(vertices: list[tuple[float, ...]], faces: list[tuple[int, ...]]) -> float:
    total = 0.0
    for first, second, third in faces:
        (ax, ay, az), (bx, by, bz), (cx, cy, cz) = vertices[first], vertices[second], vertices[third]
        total += (ax * (by * cz - bz * cy) - ay * (bx * cz - bz * cx) + az * (bx * cy - by * cx)) / 6
    return total


@pytest.mark.parametrize("family", FAMILIES)
def test_reference_turns_reach_what_is_wanted(family: str, tmp_path: Path) -> None:
    task = tool_task(family, random.Random(7))
    outputs = solve(task, tmp_path)
    assert len(outputs) == len(task.reference) - 1
    if family == "box":
        vertices, faces = mesh(tmp_path / task.hidden["out"])
        assert signed_volume(vertices, faces) == task.hidden["volume"]
        assert max(x for x, _, _ in vertices) == task.hidden["width"]
        assert max(y for _, y, _ in vertices) == task.hidden["depth"]
    else:
        assert (tmp_path / task.hidden["out"]).read_text() == task.hidden["want"]


def test_box_is_closed_and_wound_outward(tmp_path: Path) -> None:
    assert use(tmp_path, "box 2 3 4.5 part.obj") == (0, "ok")
    vertices, faces = mesh(tmp_path / "part.obj")
    assert signed_volume(vertices, faces) == 27.0
    edges = [edge for face in faces for edge in pairwise((*face, face[0]))]
    assert len(set(edges)) == 36
    assert {(end, start) for start, end in edges} == set(edges)


@pytest.mark.parametrize(("line", "printed"), [
    ("calc 3+4", "7"), ("calc 10-20", "-10"), ("calc 2+3*4", "14"), ("calc 96/4/3", "8"), ("calc 7/2", "3.5"),
    ("calc 1/3", "0.3"), ("calc -27/4", "-6.8"), ("calc 3*08", "24"), ("calc 9999*9999*9999*9999", "9996000599960001"),
    ("calc 1/3+2/3", "1"),
])
def test_calc_is_exact(line: str, printed: str, tmp_path: Path) -> None:
    assert use(tmp_path, line) == (0, printed)


@pytest.mark.parametrize("line", [
    "calc", "calc 1/0", "calc 5+", "calc 1 + 2", "calc 12345+1", "calc 1+1+1+1+1", "calc a+b", "calc $(id)", "calc 1;2",
    "cat", "cat none.txt", "cat /etc/passwd", "cat ../rec.txt", "grep root /etc/passwd",
    "cat a b", "cat -n", "grep id", "grep id none.txt", "grep none rec.txt", "grep rec rec.txt",
    "write", "write out.txt", "write Out.txt x", "write ../out.txt x", "write out.sh x", "write .txt x",
    "box 1 2 3", "box 0 2 3 part.obj", "box 1 -2 3 part.obj", "box 1 2 1e9 part.obj", "box 1 2 3 part.txt",
    "box 1 2 3.5.6 part.obj", "box 1 2 3 /tmp/part.obj",
])
def test_wrong_arguments_are_an_error_and_change_nothing(line: str, tmp_path: Path) -> None:
    (tmp_path / "rec.txt").write_text("rec id 12 tax 34")
    assert use(tmp_path, line) == (1, "error")
    assert [path.name for path in tmp_path.iterdir()] == ["rec.txt"]


def test_grep_finds_the_number_after_the_key_and_write_keeps_the_text(tmp_path: Path) -> None:
    (tmp_path / "inv.txt").write_text("rec id 12 tax 34")
    assert use(tmp_path, "grep tax inv.txt") == (0, "34")
    assert use(tmp_path, "cat inv.txt") == (0, "rec id 12 tax 34")
    assert use(tmp_path, "write out.txt two  spaces * $HOME") == (0, "ok")
    assert (tmp_path / "out.txt").read_text() == "two  spaces * $HOME"


def test_held_out_tasks_are_fixed_balanced_and_never_trained_on() -> None:
    heldout = heldout_tasks()
    assert len({task.task_id for task in heldout}) == 256
    assert [sum(task.hidden["family"] == family for task in heldout) for family in FAMILIES] == [64] * 4
    trained = {task.task_id for step in range(60) for task in training_tasks(0, step, 16)}
    assert not trained & {task.task_id for task in heldout}
    assert {task.set for task in heldout} == {"tools-heldout"}


def test_training_tasks_repeat_for_the_same_seed_and_step() -> None:
    assert training_tasks(1, 4, 16) == training_tasks(1, 4, 16)
    assert training_tasks(1, 4, 16) != training_tasks(1, 5, 16)
    assert len({task.task_id for task in training_tasks(1, 4, 64)}) == 64


def test_a_family_drawn_dry_is_an_error_and_not_an_endless_search() -> None:
    with pytest.raises(TaskError, match="not so many different tasks"):
        training_tasks(seed=0, step=0, count=20_000)
