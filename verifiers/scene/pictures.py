"""The sheet of pictures that goes with a verdict: the submission, and where there is one the reference and what
separates them, from several sides, with sizes. A PNG with the same bytes for the same models.
"""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from artifacts.store import ArtifactStore
from schemas.errors import UnavailableError
from verifiers.scene import render
from verifiers.scene.measures import areas, measure
from verifiers.scene.mesh import Floats, Mesh, Point
from verifiers.scene.rays import HINT, Caster, Frame, Shot, camera_axes, frame_of

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw

MEDIA_TYPE = "image/png"
TILE = 220
_MARGIN, _HEAD, _LEFT, _FOOT = 10, 84, 28, 30
_VIEWS: list[tuple[str, Point, bool]] = [
    ("from the front, right, above", (0.62, -1, 0.62), False), ("from the back, left, below", (-0.62, 1, -0.62), False),
    ("front: x right, z up", (0, -1, 0), False), ("right: y right, z up", (1, 0, 0), False),
    ("top: x right, y up", (0, 0, 1), False), ("cut through the middle, front", (0, -1, 0), True)]
"""Name, where the camera stands, and whether the nearer half is taken away."""
_GREY, _RULE = (96, 102, 112), (222, 224, 228)
_AXIS_COLOURS = ((196, 60, 60), (64, 140, 72), (58, 96, 196))
_LOOSE_SHOWN = 4000
_LAYERS_LIMIT = 300
"""Surface in squares of the model's size: a soup of large triangles takes minutes to draw, and shows nothing."""
_LOOSE = (235, 30, 150)
_FAULTS_SHOWN, _FAULT = 180, (178, 34, 34)


def keep(mesh: Mesh, reference: Mesh | None, loose: Floats, title: str, faults: list[str],
         artifacts: ArtifactStore) -> list[Any]:
    """Draw and store the sheet; what the evidence says of it. `loose`: pairs of end points of open edges."""
    layers = float(areas(mesh).sum()) / (2 * frame_of(mesh).radius) ** 2
    if layers > _LAYERS_LIMIT:
        return [{"name": "views", "problem": f"not drawn: its triangles would lie {layers:.0f} deep on each other"}]
    try:
        data = sheet(mesh, reference, loose, title, faults)
    except UnavailableError as wrong:
        return [{"name": "views", "problem": f"not drawn: {wrong}", "hint": wrong.hint}]
    ref = artifacts.put(data, MEDIA_TYPE)
    shows = ["submission"] if reference is None else ["submission", "reference", "difference"]
    return [{"name": "views", "shows": shows, "artifact": ref.digest, "media_type": ref.media_type,
             "size_bytes": ref.size_bytes}]


def sheet(mesh: Mesh, reference: Mesh | None, loose: Floats, title: str, faults: list[str]) -> bytes:
    try:
        from PIL import Image, ImageDraw
    except ImportError:
        raise UnavailableError("pictures cannot be drawn: pillow is not installed", hint=HINT) from None
    frame = frame_of(mesh, reference) if reference else frame_of(mesh)
    rows = _rows(mesh, reference, frame)
    width = _LEFT + len(_VIEWS) * TILE + _MARGIN
    picture = Image.new("RGB", (width, _HEAD + len(rows) * TILE + _FOOT), (255, 255, 255))
    draw = ImageDraw.Draw(picture)
    for down, (_, images) in enumerate(rows):
        for across, image in enumerate(images):
            picture.paste(Image.fromarray(image), (_LEFT + across * TILE, _HEAD + down * TILE))
    _rule(draw, len(rows), width)
    _title(draw, title, mesh, reference, faults)
    for down, (name, _) in enumerate(rows):
        label = Image.new("RGB", (TILE, _LEFT - 6), (255, 255, 255))
        ImageDraw.Draw(label).text((TILE // 2, 11), name, fill=render.INK_BYTES, font=_font(14), anchor="mm")
        picture.paste(label.rotate(90, expand=True), (3, _HEAD + down * TILE))
    _sizes(draw, mesh, frame, 0)
    if reference:
        _sizes(draw, reference, frame, TILE)
    _loose_edges(draw, loose, frame)
    _foot(draw, frame, picture.height - _FOOT, width, reference is not None, len(loose))
    out = io.BytesIO()
    picture.save(out, "PNG")
    return out.getvalue()


def _rows(mesh: Mesh, reference: Mesh | None, frame: Frame) -> list[tuple[str, list[render.Image]]]:
    got = _shots(mesh, frame)
    rows = [("submission", _shaded(got, render.SUBMITTED))]
    if reference:
        want = _shots(reference, frame)
        rows.append(("reference", _shaded(want, render.WANTED)))
        rows.append(("difference", [render.difference(*pair) for pair in zip(got, want, strict=True)]))
    return rows


def _shots(mesh: Mesh, frame: Frame) -> list[Shot]:
    caster = Caster(mesh, frame)
    return [render.shoot(caster, camera_axes(towards), TILE, cut) for _, towards, cut in _VIEWS]


def _shaded(shots: list[Shot], colour: render.Colour) -> list[render.Image]:
    return [render.shaded(shot, colour, cut) for shot, (_, _, cut) in zip(shots, _VIEWS, strict=True)]


def _font(size: int) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(size)


def _title(draw: ImageDraw, title: str, mesh: Mesh, reference: Mesh | None, faults: list[str]) -> None:
    draw.text((_LEFT, 6), title, fill=render.INK_BYTES, font=_font(15))
    numbers = f"submission: {_numbers(mesh)}" + (f"      reference: {_numbers(reference)}" if reference else "")
    draw.text((_LEFT, 28), numbers, fill=_GREY, font=_font(12))
    draw.text((_LEFT, 46), "; ".join(faults)[:_FAULTS_SHOWN], fill=_FAULT, font=_font(12))


def _numbers(mesh: Mesh) -> str:
    found = measure(mesh)
    return (f"{found.triangles} triangles, volume {found.volume:.5g}, area {found.area:.5g}, "
            f"{found.bodies} bod{'y' if found.bodies == 1 else 'ies'}")


def _rule(draw: ImageDraw, rows: int, width: int) -> None:
    for across, (name, _, _) in enumerate(_VIEWS):
        draw.text((_LEFT + across * TILE + TILE // 2, _HEAD - 10), name, fill=_GREY, font=_font(12), anchor="mm")
        draw.line([(_LEFT + across * TILE, _HEAD), (_LEFT + across * TILE, _HEAD + rows * TILE)], fill=_RULE)
    for down in range(rows + 1):
        draw.line([(_LEFT, _HEAD + down * TILE), (width - _MARGIN, _HEAD + down * TILE)], fill=_RULE)


def _place(points: Floats, frame: Frame, axes: Floats, corner: tuple[int, int]) -> Floats:
    """Pixels of points of space in the tile at `corner`."""
    flat = (points - frame.centre) / frame.radius @ axes[:2].T * render.ZOOM
    return np.column_stack([corner[0] + (flat[:, 0] + 1) / 2 * TILE, corner[1] + (1 - flat[:, 1]) / 2 * TILE])


def _sizes(draw: ImageDraw, mesh: Mesh, frame: Frame, down: int) -> None:
    """Lengths of the bounding box beside the three plain views, and the axes in the first."""
    low, high = mesh.points.min(axis=0), mesh.points.max(axis=0)
    for across, (_, towards, _) in enumerate(_VIEWS):
        corner = (_LEFT + across * TILE, _HEAD + down)
        axes = camera_axes(towards)
        if across < 2:
            _triad(draw, axes, (corner[0] + 24, corner[1] + TILE - 26))
            continue
        box = _place(np.array([low, high]), frame, axes, corner)
        left, right = sorted(box[:, 0])
        top, bottom = sorted(box[:, 1])
        flat, tall = (int(np.argmax(np.abs(axis))) for axis in axes[:2])
        under, beside = min(bottom + 9, corner[1] + TILE - 14), max(left - 9, corner[0] + 6)
        draw.line([(left, under), (right, under)], fill=_GREY)
        draw.line([(beside, top), (beside, bottom)], fill=_GREY)
        for x in (left, right):
            draw.line([(x, under - 3), (x, under + 3)], fill=_GREY)
        for y in (top, bottom):
            draw.line([(beside - 3, y), (beside + 3, y)], fill=_GREY)
        draw.text(((left + right) / 2, under + 7), f"{'xyz'[flat]} {high[flat] - low[flat]:.4g}", fill=_GREY,
                  font=_font(11), anchor="mm")
        draw.text((corner[0] + 4 if beside < corner[0] + 30 else beside, top - 9),
                  f"{'xyz'[tall]} {high[tall] - low[tall]:.4g}", fill=_GREY, font=_font(11),
                  anchor="lm" if beside < corner[0] + 30 else "mm")


def _triad(draw: ImageDraw, axes: Floats, at: tuple[int, int]) -> None:
    for axis in range(3):
        tip = (at[0] + 18 * axes[0][axis], at[1] - 18 * axes[1][axis])
        draw.line([at, tip], fill=_AXIS_COLOURS[axis], width=2)
        draw.text((at[0] + 25 * axes[0][axis], at[1] - 25 * axes[1][axis]), "xyz"[axis], fill=_AXIS_COLOURS[axis],
                  font=_font(11), anchor="mm")


def _loose_edges(draw: ImageDraw, loose: Floats, frame: Frame) -> None:
    for across, (_, towards, _) in enumerate(_VIEWS):
        ends = loose[:_LOOSE_SHOWN].reshape(-1, 3)
        pixels = _place(ends, frame, camera_axes(towards), (_LEFT + across * TILE, _HEAD)).reshape(-1, 4)
        for row in pixels.tolist():
            draw.line(row, fill=_LOOSE, width=2)


def _foot(draw: ImageDraw, frame: Frame, top: int, width: int, compared: bool, loose: int) -> None:
    """What colours mean, and a scale."""
    colours = [("seen from behind", render.BEHIND), ("cut", render.CUT)]
    if compared:
        colours = [("same surface", render.COMMON), ("too much", render.SURPLUS), ("missing", render.MISSING), *colours]
    if loose:
        colours.append(("open edge", _LOOSE))
    at = float(_LEFT)
    for name, colour in colours:
        draw.rectangle([at, top + 10, at + 12, top + 22], fill=tuple(int(part) for part in colour), outline=_GREY)
        draw.text((at + 18, top + 16), name, fill=_GREY, font=_font(12), anchor="lm")
        at += 40 + draw.textlength(name, font=_font(12))
    pixel = 2 * frame.radius / (TILE * render.ZOOM)
    length = 10 ** math.floor(math.log10(120 * pixel))
    length *= 5 if 5 * length < 120 * pixel else 2 if 2 * length < 120 * pixel else 1
    end = width - 2 * _MARGIN
    draw.line([(end - length / pixel, top + 16), (end, top + 16)], fill=render.INK_BYTES, width=2)
    draw.text((end - length / pixel - 8, top + 16), f"{length:g} units", fill=_GREY, font=_font(12), anchor="rm")
