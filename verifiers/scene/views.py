"""Comparison of what cameras see, from fixed directions all around: outline, depth and the way surfaces face.

Everything is averaged over the union of both outlines. Pixels that show neither model count for nothing: a picture
that is mostly background is no likeness.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from verifiers.scene.mesh import Mesh, Point
from verifiers.scene.rays import Caster, Shot, camera_axes, frame_of

PIXELS = 96
_DEPTH_REACH = 0.1
"""A depth that is wrong by this share of the radius or more counts as 0."""
_AXES: list[Point] = [(1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, -1, 0), (0, 0, 1), (0, 0, -1)]
_CORNERS: list[Point] = [(x, y, z) for x, y, z in itertools.product((1, -1), repeat=3)]
DIRECTIONS = {6: _AXES, 8: _CORNERS, 14: _AXES + _CORNERS}


class Likeness(NamedTuple):
    """Each in [0, 1]: the mean over all views."""

    silhouette: float
    depth: float
    normals: float


def likeness(mesh: Mesh, reference: Mesh, views: int) -> Likeness:
    frame = frame_of(mesh, reference)
    one, other = Caster(mesh, frame), Caster(reference, frame)
    rows = []
    for towards in DIRECTIONS[views]:
        axes = camera_axes(towards)
        rows.append(_compared(one.shoot(axes, PIXELS), other.shoot(axes, PIXELS)))
    silhouette, depth, normals = (float(np.mean(column)) for column in zip(*rows, strict=True))
    return Likeness(silhouette, depth, normals)


def _compared(got: Shot, want: Shot) -> tuple[float, float, float]:
    both, either = got.hit & want.hit, got.hit | want.hit
    count = int(either.sum())
    if not count or not want.hit.any():
        return 0.0, 0.0, 0.0
    depth = np.clip(1 - np.abs(got.depth.astype(np.float64) - want.depth) / _DEPTH_REACH, 0, 1)
    facing = np.clip((got.normal.astype(np.float64)[both] * want.normal[both]).sum(axis=1), 0, 1)
    return float(both.sum()) / count, float(depth[both].sum()) / count, float(facing.sum()) / count
