"""Polygons as triangles that cover them and nothing else. A fan fills a convex one; one with a reflex corner, where a
fan would spill over its edge and count surface that is not there, is cut up by manifold3d."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.errors import UnavailableError

Triangle = tuple[int, int, int]
CORNERS_LIMIT = 10_000
"""Of polygons with a reflex corner: a tangle takes the square of its corners in time."""
_FLAT = 1e-9
"""Sine of a corner that is taken for straight."""
_REACH = 1e9
"""A mesh with larger coordinates, or with what is no number, is refused anyway."""


class TooManyCorners(ValueError):
    """Its text says how many."""


def cut(corners: Sequence[Sequence[float]]) -> list[Triangle]:
    """Places in `corners`, which go once around the polygon. Raises TooManyCorners."""
    fan = [(0, at, at + 1) for at in range(1, len(corners) - 1)]
    if len(corners) < 4 or not all(abs(value) <= _REACH for corner in corners for value in corner):
        return fan
    flat = _flattened(corners)
    if _is_convex(flat):
        return fan
    if len(flat) > CORNERS_LIMIT:
        raise TooManyCorners(f"a face with a reflex corner and {len(flat)} corners, more than {CORNERS_LIMIT}")
    return _ears(flat) or fan


def _flattened(corners: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
    """Without the coordinate that the polygon's plane faces most, so that it goes around counterclockwise."""
    normal = [0.0, 0.0, 0.0]
    for at, (x, y, z) in enumerate(corners):
        u, v, w = corners[at - 1]
        normal[0] += (v - y) * (w + z)
        normal[1] += (w - z) * (u + x)
        normal[2] += (u - x) * (v + y)
    axis = max(range(3), key=lambda one: abs(normal[one]))
    across, up = ((1, 2), (2, 0), (0, 1))[axis] if normal[axis] > 0 else ((2, 1), (0, 2), (1, 0))[axis]
    return [(corner[across], corner[up]) for corner in corners]


def _is_convex(flat: Sequence[tuple[float, float]]) -> bool:
    """Whether it never turns right, and turns around once: a star's tips turn left too, but twice around."""
    turns = 0
    for at, (x, y) in enumerate(flat):
        (a, b), (c, d) = flat[at - 2], flat[at - 1]
        one, other, step, rise = c - a, d - b, x - c, y - d
        turn = one * rise - other * step
        if turn < -_FLAT * ((one * one + other * other) * (step * step + rise * rise)) ** 0.5:
            return False
        turns += (other < 0) != (rise < 0)
    return turns <= 2


def _ears(flat: list[tuple[float, float]]) -> list[Triangle]:
    try:
        import manifold3d
        import numpy as np
    except ImportError:
        raise UnavailableError("polygons with reflex corners cannot be cut up: manifold3d is not installed",
                               hint="pip install 'headrace[scene]'") from None
    return [(int(a), int(b), int(c)) for a, b, c in manifold3d.triangulate([np.array(flat, dtype=np.float64)])]
