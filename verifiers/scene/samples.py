"""Distances between surfaces by points drawn on them: Chamfer distance and F-score, with the noise of drawing told.

The draw has a fixed seed. Two draws from one surface are already some distance apart: that floor is measured on the
reference itself and taken off, so that the reference gets exactly 0 and 1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from schemas.errors import UnavailableError
from verifiers.scene.measures import areas
from verifiers.scene.mesh import Floats, Mesh
from verifiers.scene.rays import HINT

_SEED = 20_240_229
_NOISE = 1.25
"""A draw from another tessellation of the same surface differs from the floor by less than this factor."""


class Distances(NamedTuple):
    """Squared Chamfer distance in units of the reference's diagonal; `floor` is that of two draws of the reference."""

    chamfer: float
    floor: float
    excess: float
    """What is left of `chamfer` without the floor; 0 within the noise."""
    precision: float
    recall: float
    fscore: float
    tau: float
    """The distance that counted, as a share of the diagonal: never below what separates two draws."""


def distances(mesh: Mesh, reference: Mesh, count: int, tau: float) -> Distances:
    try:
        from scipy.spatial import cKDTree
    except ImportError:
        raise UnavailableError("surfaces cannot be compared: scipy is not installed", hint=HINT) from None
    low, high = reference.points.min(axis=0), reference.points.max(axis=0)
    size = float(np.linalg.norm(high - low)) or 1.0
    drawn, again, wanted = (_draw(one, count, seed) / size for one, seed in
                            ((mesh, _SEED), (reference, _SEED), (reference, _SEED + 1)))
    tree, drawn_tree, again_tree = cKDTree(wanted), cKDTree(drawn), cKDTree(again)
    to, back = tree.query(drawn)[0], drawn_tree.query(wanted)[0]
    own_to, own_back = tree.query(again)[0], again_tree.query(wanted)[0]
    chamfer, floor = _chamfer(to, back), _chamfer(own_to, own_back)
    reach = max(tau, float(own_to.max()), float(own_back.max()))
    precision, recall = float((to <= reach).mean()), float((back <= reach).mean())
    both = precision + recall
    return Distances(chamfer, floor, 0.0 if chamfer <= _NOISE * floor else chamfer - floor, precision, recall,
                     2 * precision * recall / both if both else 0.0, reach)


def _chamfer(to: Floats, back: Floats) -> float:
    return float((to * to).mean() + (back * back).mean())


def _draw(mesh: Mesh, count: int, seed: int) -> Floats:
    """Points spread evenly over the surface."""
    dice = np.random.Generator(np.random.PCG64(seed))
    total = np.cumsum(areas(mesh))
    at = np.minimum(np.searchsorted(total, dice.random(count) * total[-1], side="right"), len(total) - 1)
    u, v = dice.random((2, count, 1))
    flip = u + v > 1
    u, v = np.where(flip, 1 - u, u), np.where(flip, 1 - v, v)
    a, b, c = (corner[at] for corner in mesh.corners())
    points: Floats = a + u * (b - a) + v * (c - a)
    return points
