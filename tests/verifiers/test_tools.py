"""Tool tasks: content, whether it was handed in, and how clean the way was."""

from __future__ import annotations

import pytest

from schemas.enums import ScoreStatus
from tasks.shapes import box, flipped, obj, opened
from tasks.task import Task
from tests.verifiers.rig import Rig

CALC = Task(task_id="c", kind="tools", set="s", prompt="p", hidden={
    "family": "calc", "out": "out.txt", "want": "42", "parts": {"a": 6}})
BOX = Task(task_id="b", kind="tools", set="s", prompt="p", hidden={
    "family": "box", "out": "part.obj", "width": 3, "depth": 4, "volume": 24})
DONE = [("calc", "ok"), ("done", "ok")]


@pytest.mark.parametrize(("content", "calls", "reward"), [
    ("42", DONE, 1.0), (" 42\n", DONE, 1.0), ("42", [("calc", "ok")], 0.5), ("42", [("done", "error")], 0.45),
    ("42", [("calc", "error"), ("x", "unknown_tool"), *DONE], 0.81), ("43", DONE, 0.0), ("42.0", DONE, 0.0),
    ("042", DONE, 0.0), ("42 43", DONE, 0.0), ("", DONE, 0.0), ("4" * 5000, DONE, 0.0), (None, DONE, 0.0),
    (b"\xff42", DONE, 0.0)])
def test_text_tasks(rig: Rig, content: str | bytes | None, calls: list[tuple[str, str]], reward: float) -> None:
    score = rig.score(rig.hand_in(CALC, {} if content is None else {"out.txt": content}, calls=calls))
    assert score.status == ScoreStatus.OK and score.reward == pytest.approx(reward)
    assert score.reward == score.components["content"] * score.components["finished"] * score.components["clean"]


@pytest.mark.parametrize(("mesh", "content"), [
    (obj(box(3, 4, 2)), 1.0), (obj(box(4, 3, 2)), 0.7), (obj(box(3, 4, 5)), 0.3), (obj(box(3, 8, 1)), 0.85),
    (obj(flipped(box(3, 4, 2))), 0.3), (obj(opened(box(3, 4, 2))), 0.3), ("", 0.0), ("v nan 0 0\nf 1 1 1\n", 0.0),
    ("solid", 0.0), ("#" * (70 << 10), 0.0)])
def test_box_tasks(rig: Rig, mesh: str, content: float) -> None:
    score = rig.score(rig.hand_in(BOX, {"part.obj": mesh}, calls=DONE))
    assert score.status == ScoreStatus.OK and score.reward == pytest.approx(content)
    if len(mesh) < 64 << 10:
        assert rig.evidence(score)["details"]["want"] == {"width": 3.0, "depth": 4.0, "volume": 24.0}


def test_a_folder_or_a_link_in_place_of_the_file_is_the_policys_doing(rig: Rig) -> None:
    for name, target in (("folder", "mkdir out.txt"), ("link", "ln -s /etc/passwd out.txt"),
                         ("pipe", "mkfifo out.txt"), ("loop", "ln -s out.txt out.txt")):
        from sandboxes.sandbox import SandboxSpec

        sandbox = rig.backend.acquire(SandboxSpec())
        try:
            assert sandbox.exec(["sh", "-c", target]).exit_code == 0
            submission = rig._store(CALC, sandbox.snapshot(), None, [])
        finally:
            sandbox.close()
        score = rig.score(submission)
        assert (score.status, score.reward) == (ScoreStatus.OK, 0.0), name


def test_the_tasks_own_files_are_no_answer(rig: Rig) -> None:
    """Without a workspace the submission stands for the task's files as they were."""
    score = rig.score(rig.hand_in(CALC, None, calls=DONE))
    assert (score.reward, rig.evidence(score)["details"]["problem"]) == (0.0, "there is no out.txt")
