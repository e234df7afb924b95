"""Likeness to a reference: the reference gets exactly 1, and what only looks like it, or only counts like it, does
not."""

from __future__ import annotations

import math

import numpy as np
import pytest

from schemas.enums import ScoreStatus
from tasks.scene_cells import cells
from tasks.shapes import Shape, ascii_stl, box, extrude, flipped, obj
from tasks.task import Task
from tests.verifiers.rig import Rig
from tests.verifiers.scene_files import binary_stl, joined, moved, scaled, triangles
from verifiers.scene import samples, solids, views
from verifiers.scene.compare import compare
from verifiers.scene.formats import parse_mesh
from verifiers.scene.mesh import Mesh
from verifiers.scene.spec import Comparison, Reference

STEP = cells([0, 2, 4], [0, 3], [0, 1, 2], lambda x, _, z: z <= x)


def ball(radius: float, across: int = 24) -> Shape:
    """A sphere of rings; its middle at (radius, radius, radius)."""
    rings = [(math.cos(math.pi * at / across), math.sin(math.pi * at / across)) for at in range(1, across)]
    turns = [2 * math.pi * at / across for at in range(across)]
    corners = [(radius * (1 + wide * math.cos(turn)), radius * (1 + wide * math.sin(turn)), radius * (1 + high))
               for high, wide in rings for turn in turns]
    corners += [(radius, radius, 2 * radius), (radius, radius, 0)]
    faces = [[ring * across + at, (ring + 1) * across + at, (ring + 1) * across + (at + 1) % across,
              ring * across + (at + 1) % across] for ring in range(across - 2) for at in range(across)]
    top, bottom = len(corners) - 2, len(corners) - 1
    faces += [[top, at, (at + 1) % across] for at in range(across)]
    last = (across - 2) * across
    faces += [[bottom, last + (at + 1) % across, last + at] for at in range(across)]
    return Shape(corners, faces)


def mesh_of(shape: Shape) -> Mesh:
    return parse_mesh(binary_stl(shape), "a.stl")


def task(reference: Shape, **more: object) -> Task:
    return Task(task_id="c", kind="scene", set="s", prompt="p", hidden={
        "mesh": "part.stl", "bodies": 1,
        "comparison": {"reference": {"format": "stl", "data": binary_stl(reference)}, **more}})


def finer(shape: Shape) -> Shape:
    """The same surface with four triangles for each."""
    corners, faces = list(shape.corners), []
    for triangle in triangles(shape):
        mid = []
        for a, b in ((0, 1), (1, 2), (2, 0)):
            one, other = shape.corners[triangle[a]], shape.corners[triangle[b]]
            corners.append(((one[0] + other[0]) / 2, (one[1] + other[1]) / 2, (one[2] + other[2]) / 2))
            mid.append(len(corners) - 1)
        faces += [[triangle[0], mid[0], mid[2]], [mid[0], triangle[1], mid[1]], [mid[2], mid[1], triangle[2]], mid]
    return Shape(corners, faces)


def test_the_reference_scores_one_wherever_it_stands_and_however_it_is_cut(rig: Rig) -> None:
    for shape in (STEP, moved(STEP, -70), finer(STEP)):
        score = rig.score(rig.hand_in(task(STEP), {"part.stl": binary_stl(shape)}))
        assert (score.status, score.reward) == (ScoreStatus.OK, 1.0), score.components
    exact = solids.shared(mesh_of(STEP), mesh_of(moved(STEP, 1, 0, 0)))
    assert exact is not None and exact.iou == pytest.approx(12 / 24) and exact.surplus == pytest.approx(6)


def test_by_the_file_means_where_the_file_says(rig: Rig) -> None:
    beside = rig.score(rig.hand_in(task(STEP, align="none"), {"part.stl": binary_stl(moved(STEP, 50))}))
    assert beside.reward is not None and beside.reward < 0.05 and beside.components["iou"] == 0.0


def boards() -> Shape:
    """Three thin boards, one for each axis, as wide and high as the box; one body."""
    return cells([0, 4.9, 5.1, 10], [0, 4.9, 5.1, 10], [0, 4.9, 5.1, 10], lambda x, y, z: 1 in (x, y, z))


def soup() -> Shape:
    dice = np.random.default_rng(7)
    places = dice.random((6000, 3)) * 10
    return Shape([(x, y, z) for x, y, z in places.tolist()], [[at, at + 1, at + 2] for at in range(0, 6000, 3)])


BLOCK = box(10, 10, 10)
HACKS = {
    "reversed": flipped(BLOCK), "duplicated": joined(BLOCK, BLOCK), "shifted twice": joined(BLOCK, moved(BLOCK, 0.01)),
    "hidden inside": joined(BLOCK, moved(box(2, 2, 2), 4)), "soup": soup(),
    "paper boards": Shape(
        [(0, 5, 0), (10, 5, 0), (10, 5, 10), (0, 5, 10), (5, 0, 0), (5, 10, 0), (5, 10, 10), (5, 0, 10)],
        [[0, 1, 2, 3], [3, 2, 1, 0], [4, 5, 6, 7], [7, 6, 5, 4]]),
    "many bodies": joined(*(moved(box(0.1, 0.1, 0.1), x, y, z) for x in (0, 9.9) for y in (0, 9.9) for z in (0, 9.9)))}


@pytest.mark.parametrize("name", HACKS)
def test_hacks_that_are_no_solid_score_nothing(rig: Rig, name: str) -> None:
    score = rig.score(rig.hand_in(task(BLOCK), {"part.stl": binary_stl(HACKS[name])}))
    assert (score.status, score.reward) == (ScoreStatus.OK, 0.0)
    details = rig.evidence(score)["details"]
    assert details["failed"] and details["defects"]


def test_boards_that_fill_every_outline_are_no_block(rig: Rig) -> None:
    """A sound body with the outline of the block from all six axes: cameras at the corners and volumes tell."""
    score = rig.score(rig.hand_in(task(BLOCK), {"part.stl": binary_stl(boards())}))
    assert score.components["simple"] == 1.0 and score.components["silhouette"] > 0.7
    assert score.components["iou"] < 0.07 and score.components["depth"] < 0.6
    assert score.reward is not None and score.reward < 0.1
    flat = rig.score(rig.hand_in(task(BLOCK, views=6), {"part.stl": binary_stl(boards())}))
    assert flat.components["silhouette"] == 1.0 and flat.components["depth"] < 0.1


def test_a_thin_shell_around_the_shape_is_not_the_shape(rig: Rig) -> None:
    """A box of sheet with a hole in its lid: one sound body, and from outside nearly the block itself."""
    walls = [0, 0.05, 4.9, 5.1, 9.95, 10]
    shell = cells(walls, walls, walls, lambda x, y, z: (x in (0, 4) or y in (0, 4) or z in (0, 4))
                  and (x, y, z) != (2, 2, 4))
    score = rig.score(rig.hand_in(task(BLOCK), {"part.stl": binary_stl(shell)}))
    assert score.components["simple"] == 1.0 and score.components["silhouette"] == 1.0
    assert score.components["depth"] > 0.99 and score.components["iou"] < 0.04
    assert score.reward is not None and score.reward < 0.07


def test_a_tiny_model_is_not_like_its_background(rig: Rig) -> None:
    for by, word in ((0.001, "small by a factor of 1000"), (1000, "large by a factor of 1000")):
        score = rig.score(rig.hand_in(task(ball(10)), {"part.stl": binary_stl(scaled(ball(10), by))}))
        assert score.status == ScoreStatus.OK and score.reward is not None and score.reward < 0.01
        assert score.components["silhouette"] < 0.001
        assert word in rig.evidence(score)["details"]["found"]["units"]


def test_noise_of_the_draw_is_taken_off() -> None:
    round_one, other_cut = mesh_of(ball(1)), mesh_of(finer(ball(1)))
    same = samples.distances(other_cut, round_one, 2000, 0.01)
    assert same.floor > 1e-4 and same.chamfer > 1e-4
    assert same.excess == 0.0 and same.fscore > 0.999
    grown = samples.distances(mesh_of(scaled(ball(1), 1.2)), round_one, 2000, 0.01)
    assert grown.excess > 2e-3 and grown.fscore < 0.5
    assert samples.distances(other_cut, round_one, 2000, 0.01) == same


def test_the_way_faces_look_is_seen_by_normals_alone() -> None:
    """Fine ridges: nearly the same outline, depth and volume."""
    flat = mesh_of(box(10, 10, 1))
    zigzag = [(at / 20, 1 + 0.05 * (at % 2)) for at in range(200, 0, -1)]
    ridged = mesh_of(extrude([(0, 0), (10, 0), *zigzag, (0, 1)], 10, along="y"))
    like = views.likeness(ridged, flat, 14)
    assert like.silhouette > 0.97 and like.depth > 0.95 and like.normals < 0.92


def test_only_metrics_with_weight_are_worked_out() -> None:
    wanted = Comparison(reference=Reference(format="stl"), weights={"iou": 1.0}, enough=1.0)
    found = compare(mesh_of(BLOCK), mesh_of(box(10, 10, 20)), wanted, {})
    assert found == {"iou": pytest.approx(0.5), "comparison": pytest.approx(0.5)}


@pytest.mark.parametrize("hidden", [
    {}, {"comparison": {"reference": {"format": "glb"}}}, {"comparison": {"reference": {"format": "stl"}, "views": 5}},
    {"comparison": {"reference": {"format": "stl", "text": ascii_stl(BLOCK)}, "weights": {"ssim": 1.0}}},
    {"comparison": {"reference": {"format": "stl", "data": b"no"}}}, {"volume": 1, "symmetry": "w"},
    {"comparison": {"reference": {"format": "obj", "text": obj(flipped(BLOCK))}}}, {"volum": 1}, {"probes": {}},
    {"volume": 1, "toolchain": {"name": "blender", "program": "a"}}, {"volume": 1, "toolchain": {"name": "openscad"}}])
def test_a_task_at_fault_is_the_verifiers_error_and_no_zero(rig: Rig, hidden: dict[str, object]) -> None:
    bad = Task(task_id="b", kind="scene", set="s", prompt="p", hidden={"mesh": "part.obj", **hidden})
    score = rig.score(rig.hand_in(bad, {"part.obj": obj(BLOCK)}))
    assert (score.status, score.reward) == (ScoreStatus.VERIFIER_ERROR, None)
    assert "task" in str(rig.evidence(score)["details"])


def test_a_reference_may_lie_in_the_store_and_one_that_is_lost_is_no_zero(rig: Rig) -> None:
    digest = rig.artifacts.put(binary_stl(STEP)).digest
    kept = Task(task_id="a", kind="scene", set="s", prompt="p", hidden={
        "mesh": "part.stl", "comparison": {"reference": {"format": "stl", "artifact": digest}}})
    assert rig.score(rig.hand_in(kept, {"part.stl": binary_stl(STEP)})).reward == 1.0
    lost = Task(task_id="a", kind="scene", set="s", prompt="p", hidden={
        "mesh": "part.stl", "comparison": {"reference": {"format": "stl", "artifact": "sha256:" + "0" * 64}}})
    score = rig.score(rig.hand_in(lost, {"part.stl": binary_stl(STEP)}))
    assert (score.status, score.reward) == (ScoreStatus.INFRA_FAILURE, None)
