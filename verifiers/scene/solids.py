"""Exact volumes of unions and intersections (manifold3d), for models that passed their gates."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from schemas.errors import UnavailableError
from verifiers.scene.mesh import Mesh

HINT = "pip install 'headrace[scene]'"


class Shared(NamedTuple):
    """Volumes. `surplus`: in the first alone; `missing`: in the second alone."""

    iou: float
    surplus: float
    missing: float


def shared(first: Mesh, second: Mesh) -> Shared | None:
    """None where the kernel refuses one of them as no manifold."""
    a, b = _solid(first), _solid(second)
    if a is None or b is None:
        return None
    both = float((a ^ b).volume())
    one, other = float(a.volume()), float(b.volume())
    union = one + other - both
    return Shared(min(1.0, max(0.0, both / union)) if union > 0 else 0.0, max(0.0, one - both), max(0.0, other - both))


def _solid(mesh: Mesh) -> Any | None:
    try:
        import manifold3d
    except ImportError:
        raise UnavailableError("solids cannot be compared: manifold3d is not installed", hint=HINT) from None
    raw = manifold3d.Mesh64(np.ascontiguousarray(mesh.points), np.ascontiguousarray(mesh.triangles, dtype=np.uint64))
    solid = manifold3d.Manifold(raw)
    return solid if solid.status() == manifold3d.Error.NoError and not solid.is_empty() else None


def mirrored(mesh: Mesh, axis: int) -> Mesh:
    """The mirror image about the middle of the bounding box."""
    points = mesh.points.copy()
    points[:, axis] = points[:, axis].min() + points[:, axis].max() - points[:, axis]
    return Mesh(points, mesh.triangles[:, ::-1])
