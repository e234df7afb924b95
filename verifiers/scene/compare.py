"""Likeness of a model to the reference: exact volumes, distances of surfaces, and what cameras see."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from artifacts.store import ArtifactStore
from schemas.errors import VerifierError
from verifiers.scene import samples, solids, views
from verifiers.scene.constraints import unit_slip
from verifiers.scene.formats import parse_mesh
from verifiers.scene.measures import measure
from verifiers.scene.mesh import MAX_TRIANGLES, Mesh, MeshError
from verifiers.scene.spec import WEIGHTS, Comparison

_ALIKE = 0.5
"""Below this IoU surfaces and views count for less: a thin shell looks like what it wraps, and is not like it."""
_CHAMFER_REACH = 0.1
"""Surfaces that are further apart than this share of the diagonal, in the root mean square, have nothing in common."""


def reference_of(wanted: Comparison, artifacts: ArtifactStore) -> Mesh:
    """The wanted model. Raises VerifierError for one that is no solid itself."""
    given = wanted.reference
    data = artifacts.get(given.artifact) if given.artifact else given.data or given.text.encode()
    try:
        mesh = parse_mesh(data, f"reference.{given.format}", 4 * MAX_TRIANGLES)
    except MeshError as wrong:
        raise VerifierError(f"the task's reference is no mesh: {wrong}", where="reference") from None
    measures = measure(mesh)
    if not (measures.closed and measures.consistent and measures.volume > 0):
        raise VerifierError("the task's reference is no solid", where="reference", value=measures._asdict())
    return mesh


def aligned(mesh: Mesh, reference: Mesh, how: str) -> Mesh:
    """The model, moved to where the reference stands. It is never turned or scaled."""
    if how == "none":
        return mesh
    low, high = mesh.points.min(axis=0), mesh.points.max(axis=0)
    to_low, to_high = reference.points.min(axis=0), reference.points.max(axis=0)
    shift = to_low - low if how == "corner" else ((to_low + to_high) - (low + high)) / 2
    return mesh if not np.any(shift) else mesh._replace(points=mesh.points + shift)


def compare(mesh: Mesh, reference: Mesh, wanted: Comparison, notes: dict[str, Any]) -> Mapping[str, float]:
    """Every metric that counts, and `comparison`: their weighted mean, in which looks fade where volumes disagree."""
    weights = wanted.weights or WEIGHTS
    names = [name for name, weight in weights.items() if weight > 0]
    raw: dict[str, float] = {}
    if "iou" in names:
        exact = solids.shared(mesh, reference)
        raw["iou"] = exact.iou if exact else 0.0
        notes["volumes"] = {"surplus": exact.surplus, "missing": exact.missing} if exact else "no manifold"
    if {"chamfer", "fscore"} & set(names):
        apart = samples.distances(mesh, reference, wanted.samples, wanted.tau)
        raw |= {"chamfer": max(0.0, 1 - math.sqrt(apart.excess / 2) / _CHAMFER_REACH), "fscore": apart.fscore}
        notes["distances"] = {name: round(value, 12) for name, value in apart._asdict().items()}
    if {"silhouette", "depth", "normals"} & set(names):
        raw |= views.likeness(mesh, reference, wanted.views)._asdict()
    notes["raw"] = {name: round(raw[name], 9) for name in sorted(names)}
    if slip := unit_slip(_extents(mesh), _extents(reference)):
        notes["units"] = slip
    found = {name: round(min(1.0, raw[name] / wanted.enough), 9) for name in names}
    fade = min(1.0, raw["iou"] / _ALIKE) if "iou" in names else 1.0
    counted = sum(weights[name] * found[name] * (1.0 if name == "iou" else fade) for name in names)
    return {**found, "comparison": round(counted / sum(weights.values()), 9)}


def _extents(mesh: Mesh) -> tuple[float, float, float]:
    x, y, z = (float(value) for value in mesh.points.max(axis=0) - mesh.points.min(axis=0))
    return x, y, z
