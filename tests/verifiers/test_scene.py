"""3D models: gates first, then constraints; the known ways to fake a solid score 0."""

from __future__ import annotations

import pytest

from schemas.enums import ScoreStatus
from tasks.shapes import Shape, ascii_stl, box, flipped, obj, opened
from tasks.task import Task
from tests.verifiers.rig import Rig

TASK = Task(task_id="s", kind="scene", set="s", prompt="p", hidden={
    "mesh": "part.obj", "max_triangles": 500, "extents": [2, 4, 6], "volume": 48, "area": 88, "euler": 2,
    "probes": {"inside": [[1, 2, 3], [0.1, 0.1, 0.1], [1.9, 3.9, 0.1]], "outside": [[1, 2, 7], [-1, 2, 3]]}})
PROGRAM = Task(task_id="p", kind="scene", set="s", prompt="p", hidden={
    "mesh": "part.obj", "extents": [2, 4, 6], "toolchain": {"argv": ["python3", "part.py"], "deadline_s": 2.0}})


def two_boxes(first: Shape, second: Shape) -> str:
    faces = "".join("f " + " ".join(str(corner + 9) for corner in face) + "\n" for face in second.faces)
    return obj(first) + "".join(f"v {x} {y} {z}\n" for x, y, z in second.corners) + faces


def moved(shape: Shape, by: float) -> Shape:
    return Shape([(x + by, y + by, z + by) for x, y, z in shape.corners], shape.faces)


def test_the_right_shape_scores_one_wherever_it_stands(rig: Rig) -> None:
    for shape in (box(2, 4, 6), moved(box(2, 4, 6), -100)):
        score = rig.score(rig.hand_in(TASK, {"part.obj": obj(shape)}))
        assert (score.status, score.reward) == (ScoreStatus.OK, 1.0)
        details = rig.evidence(score)["details"]
        assert details["measured"]["volume"] == details["wanted"]["volume"] == 48.0
        assert details["wanted"]["probes"]["outside"] == [[1.0, 2.0, 7.0], [-1.0, 2.0, 3.0]]
        assert set(details["wanted"]) == {
            "bodies", "cavities", "tolerance", "extents", "volume", "area", "euler", "probes"}


@pytest.mark.parametrize("mesh", [
    obj(flipped(box(2, 4, 6))), obj(opened(box(2, 4, 6))), obj(box(2, 4, 6)) * 2, "", "v 0 0 0\n",
    two_boxes(box(2, 4, 6), moved(box(1, 1, 1), 0.5)), two_boxes(box(2, 4, 6), moved(flipped(box(1, 1, 1)), 0.5)),
    obj(box(2, 4, 6)).replace("f 1 4 3 2", "f 2 3 4 1"), "v 0 0 0\nv 2 0 0\nv 0 4 6\n" + "f 1 2 3\n" * 501,
    obj(box(2, 4, 6)).replace("v 2 4 6", "v nan 4 6")],
    ids=["inside out", "open", "twice", "empty", "no faces", "hidden body", "hidden hole", "one face turned", "soup",
         "nan"])
def test_what_is_no_solid_scores_nothing(rig: Rig, mesh: str) -> None:
    score = rig.score(rig.hand_in(TASK, {"part.obj": mesh}))
    assert (score.status, score.reward) == (ScoreStatus.OK, 0.0)


def test_each_constraint_counts(rig: Rig) -> None:
    turned = rig.score(rig.hand_in(TASK, {"part.obj": obj(box(4, 2, 6))}))
    assert turned.components["volume"] == turned.components["area"] == 1.0
    assert turned.components["extents"] == pytest.approx(1 / 3)
    assert turned.reward == pytest.approx((1 / 3 + 1 + 1 + 1 + 4 / 5) / 5)
    within = rig.score(rig.hand_in(TASK, {"part.obj": obj(box(2.001, 4, 6))}))
    assert within.reward == 1.0
    beyond = rig.score(rig.hand_in(TASK, {"part.obj": obj(box(2.01, 4, 6))}))
    assert beyond.components["extents"] == pytest.approx(2 / 3) and beyond.components["volume"] == 0.0


def test_a_wrong_shape_with_the_right_numbers_fails_its_probes(rig: Rig) -> None:
    """The extents are right, but the body is a thin sheet along the diagonal."""
    corners = [(0, 0, 0), (0.1, 0, 0), (0.1, 4, 0), (0, 4, 0), (1.9, 0, 6), (2, 0, 6), (2, 4, 6), (1.9, 4, 6)]
    sheet = Shape(corners, [[0, 3, 2, 1], [4, 5, 6, 7], [0, 1, 5, 4], [1, 2, 6, 5], [2, 3, 7, 6], [3, 0, 4, 7]])
    score = rig.score(rig.hand_in(TASK, {"part.obj": obj(sheet)}))
    assert score.components["extents"] == 1.0 and score.components["probes"] == 4 / 5


@pytest.mark.parametrize(("program", "reward"), [
    (f"open('part.obj', 'w').write({obj(box(2, 4, 6))!r})\n", 1.0), ("pass\n", 0.0), ("raise SystemExit(1)\n", 0.0),
    (f"open('part.obj', 'w').write({obj(box(2, 4, 6))!r})\nraise SystemExit(3)\n", 0.0), ("while True: pass\n", 0.0)])
def test_a_program_must_make_its_mesh_again(rig: Rig, program: str, reward: float) -> None:
    """The mesh that was handed in is right each time: it does not count."""
    score = rig.score(rig.hand_in(PROGRAM, {"part.obj": obj(box(2, 4, 6)), "part.py": program}))
    assert (score.status, score.reward) == (ScoreStatus.OK, reward)


def test_the_ending_says_the_format(rig: Rig) -> None:
    stl = Task(task_id="s", kind="scene", set="s", prompt="p", hidden={"mesh": "deep/part.stl", "volume": 48})
    assert rig.score(rig.hand_in(stl, {"deep/part.stl": ascii_stl(box(2, 4, 6))})).reward == 1.0
    assert rig.score(rig.hand_in(stl, {"deep/part.stl": obj(box(2, 4, 6))})).reward == 0.0
