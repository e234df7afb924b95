"""Pictures beside a verdict: a person sees the submission, the reference and what separates them; the bytes repeat."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from tasks.scene_cells import cells
from tasks.shapes import box, obj, opened
from tasks.task import Task
from tests.verifiers.rig import Rig
from tests.verifiers.scene_files import binary_stl, joined, moved
from verifiers.scene import render
from verifiers.scene.formats import parse_mesh
from verifiers.scene.rays import Caster, camera_axes, frame_of

STEP = cells([0, 2, 4], [0, 3], [0, 1, 2], lambda x, _, z: z <= x)
COMPARED = Task(task_id="c", kind="scene", set="s", prompt="p", hidden={
    "mesh": "part.stl", "comparison": {"reference": {"format": "stl", "data": binary_stl(STEP)}}})
MEASURED = Task(task_id="m", kind="scene", set="s", prompt="p", hidden={"mesh": "part.obj", "volume": 6})


def picture(rig: Rig, submission: str) -> tuple[bytes, dict[str, object]]:
    shown = rig.evidence(rig.score(submission))["details"]["pictures"][0]
    return rig.artifacts.get(shown["artifact"]), shown


def share(data: bytes, colour: render.Colour) -> float:
    """Pixels near a colour's hue, of those that are not paper."""
    pixels = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"), dtype=float).reshape(-1, 3)
    inked = pixels[pixels.min(axis=1) < 200]
    wanted = np.array(colour) / np.linalg.norm(colour)
    return float((inked @ wanted / np.linalg.norm(inked, axis=1) > 0.995).mean())


def test_the_same_verdict_has_the_same_picture(rig: Rig) -> None:
    submission = rig.hand_in(COMPARED, {"part.stl": binary_stl(box(4, 3, 2))})
    first, shown = picture(rig, submission)
    assert picture(rig, submission) == (first, shown)
    assert shown["shows"] == ["submission", "reference", "difference"] and shown["media_type"] == "image/png"
    assert Image.open(io.BytesIO(first)).size == (1358, 774) and shown["size_bytes"] == len(first)


def test_surplus_and_missing_are_told_apart(rig: Rig) -> None:
    full, _ = picture(rig, rig.hand_in(COMPARED, {"part.stl": binary_stl(box(4, 3, 2))}))
    low, _ = picture(rig, rig.hand_in(COMPARED, {"part.stl": binary_stl(box(4, 3, 1))}))
    same, _ = picture(rig, rig.hand_in(COMPARED, {"part.stl": binary_stl(STEP)}))
    assert share(full, render.SURPLUS) > 0.05 > share(low, render.SURPLUS)
    assert share(low, render.MISSING) > 0.05 > share(full, render.MISSING)
    assert share(same, render.SURPLUS) < 0.01 and share(same, render.MISSING) < 0.01


def test_a_cut_shows_what_is_hidden_inside(rig: Rig) -> None:
    """From outside both look the same."""
    block, core = box(9, 9, 9), moved(box(4, 4, 4), 2.4)
    made = Task(task_id="h", kind="scene", set="s", prompt="p", hidden={
        "mesh": "part.stl", "comparison": {"reference": {"format": "stl", "data": binary_stl(block)}}})
    hidden, _ = picture(rig, rig.hand_in(made, {"part.stl": binary_stl(joined(block, core))}))
    plain, _ = picture(rig, rig.hand_in(made, {"part.stl": binary_stl(block)}))
    assert share(hidden, render.SURPLUS) > 0.003 > share(plain, render.SURPLUS)


def test_an_open_model_shows_its_inside(rig: Rig) -> None:
    broken, shown = picture(rig, rig.hand_in(MEASURED, {"part.obj": obj(opened(box(1, 2, 3)))}))
    sound, _ = picture(rig, rig.hand_in(MEASURED, {"part.obj": obj(box(1, 2, 3))}))
    assert shown["shows"] == ["submission"]
    assert share(broken, render.BEHIND) > 0.02 > share(sound, render.BEHIND)


def test_views_show_what_stands_where() -> None:
    """Seen from the front (towards +y), x runs to the right and z up."""
    mesh = parse_mesh(binary_stl(STEP), "a.stl")
    shot = Caster(mesh, frame_of(mesh)).shoot(camera_axes((0, -1, 0)), 64)
    assert shot.hit[20, 40] and not shot.hit[20, 20] and shot.hit[40, 20]
    assert shot.normal[shot.hit].tolist() == [[0, 0, 1]] * int(shot.hit.sum())
    above = Caster(mesh, frame_of(mesh)).shoot(camera_axes((0, 0, 1)), 64)
    assert above.depth[32, 40] < above.depth[32, 20]
