"""Where a surface covers space more than once, or inside out: what volume and edges alone do not show.

Rays on a fixed grid along the three axes count how the surface winds: 0 outside and in cavities, 1 inside. A body in
another one, two bodies in one place, or a shell that passes through itself gives 2 or more; a part that is turned
inside out gives less than 0. Sampled: an overlap thinner than the grid may stay unseen.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from verifiers.scene.mesh import Floats, Ints, Mesh

GRID = 48
_SHIFT = (0.4142135623, 0.7320508075)
"""Rays off the places where models have their edges."""
_PAIRS_LIMIT = 4_000_000


class Overlap(NamedTuple):
    """Lengths of rays in matter, as shares: covered more than once, and turned inside out."""

    doubled: float
    inverted: float


def overlap(mesh: Mesh) -> Overlap:
    covered = doubled = inverted = 0.0
    for axis in range(3):
        rays, depth, turn = _crossings(mesh, axis)
        order = np.lexsort((depth, rays))
        rays, depth, turn = rays[order], depth[order], turn[order]
        same = rays[1:] == rays[:-1]
        starts = np.concatenate([[True], ~same]) if len(rays) else np.empty(0, dtype=bool)
        running = np.cumsum(turn)
        begin = np.flatnonzero(starts)
        before = np.repeat(running[begin] - turn[begin], np.diff(np.append(begin, len(rays))))
        level = (running - before)[:-1]
        length = np.where(same, depth[1:] - depth[:-1], 0.0)
        whole = np.repeat(_sums(turn, begin) == 0, np.diff(np.append(begin, len(rays))))[:-1]
        length = np.where(whole, length, 0.0)
        covered += float(length[level != 0].sum())
        doubled += float(length[level > 1].sum())
        inverted += float(length[level < 0].sum())
    return Overlap(doubled / covered if covered else 0.0, inverted / covered if covered else 0.0)


def _sums(turn: Floats, begin: Ints) -> Floats:
    return np.add.reduceat(turn, begin) if len(turn) else np.empty(0)


def _crossings(mesh: Mesh, axis: int) -> tuple[Floats, Floats, Floats]:
    """Ray, depth, and +1 (into matter) or -1 for every crossing of the grid's rays along `axis`."""
    low, high = mesh.points.min(axis=0), mesh.points.max(axis=0)
    size = np.where(high > low, high - low, 1.0)
    across = [(axis + 1) % 3, (axis + 2) % 3]
    flat = [((corner - low) / size)[:, across] * GRID - np.array(_SHIFT) for corner in mesh.corners()]
    deep = [corner[:, axis] for corner in mesh.corners()]
    a, b, c = flat
    double = (b[:, 0] - a[:, 0]) * (c[:, 1] - a[:, 1]) - (b[:, 1] - a[:, 1]) * (c[:, 0] - a[:, 0])
    first = np.maximum(np.ceil(np.minimum(np.minimum(a, b), c)), 0).astype(np.int64)
    last = np.minimum(np.floor(np.maximum(np.maximum(a, b), c)), GRID - 1).astype(np.int64)
    spans = np.maximum(last - first + 1, 0) * (double != 0)[:, None]
    counts = spans[:, 0] * spans[:, 1]
    if int(counts.sum()) > _PAIRS_LIMIT:  # a soup of large triangles: no solid, and edges say so
        counts = np.where(np.cumsum(counts) <= _PAIRS_LIMIT, counts, 0)
    triangle = np.repeat(np.arange(len(counts)), counts)
    within = np.arange(len(triangle)) - np.repeat(np.cumsum(counts) - counts, counts)
    x = first[triangle, 0] + within % np.maximum(spans[triangle, 0], 1)
    y = first[triangle, 1] + within // np.maximum(spans[triangle, 0], 1)
    at = [one[triangle] for one in flat]
    weights = [_edge(at[1], at[2], x, y), _edge(at[2], at[0], x, y), _edge(at[0], at[1], x, y)]
    area = double[triangle]
    inside = np.logical_and.reduce([weight * np.sign(area) >= 0 for weight in weights])
    depth = sum(weight * one[triangle] for weight, one in zip(weights, deep, strict=True)) / area
    return (x * GRID + y)[inside], depth[inside], -np.sign(area)[inside]


def _edge(a: Floats, b: Floats, x: Floats, y: Floats) -> Floats:
    return (b[:, 0] - a[:, 0]) * (y - a[:, 1]) - (b[:, 1] - a[:, 1]) * (x - a[:, 0])
