"""What a model must be before its numbers mean anything, and the defects by name for whoever reads the evidence.

A gate is 0 or 1; one that fails makes the reward 0.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from verifiers.scene.measures import Edges, Measures, areas, parts, signed_volumes
from verifiers.scene.mesh import Mesh
from verifiers.scene.overlap import Overlap
from verifiers.scene.spec import SceneHidden

_SLIVER = 1e-12
_SHOWN = 0.005


def gates(measures: Measures, covered: Overlap | None, hidden: SceneHidden) -> dict[str, float]:
    """`closed`, `consistent`, `solid`, `bodies`, and `simple` where the surface is closed."""
    solid_bodies = measures.bodies - measures.cavities
    simple = {} if covered is None else {
        "simple": float(covered.doubled <= hidden.overlap and covered.inverted <= hidden.overlap)}
    return {
        "closed": float(measures.closed), "consistent": float(measures.consistent),
        "solid": float(measures.volume > 0),
        "bodies": float((solid_bodies, measures.cavities) == (hidden.bodies, hidden.cavities)), **simple}


def defects(mesh: Mesh, edges: Edges, measures: Measures, covered: Overlap | None,
            hidden: SceneHidden) -> list[str]:
    """Sentences, the gravest first. Empty for a sound model of the wanted number of bodies."""
    if measures.bodies == measures.cavities and measures.closed and measures.consistent:
        return [f"inverted mesh: all faces point inward (volume {measures.volume:g})", *_triangles(mesh)]
    space = _space(covered, hidden) if covered else ()
    return [*_surface(mesh, edges, measures), *_bodies(mesh, measures, hidden), *space, *_triangles(mesh)]


def _surface(mesh: Mesh, edges: Edges, measures: Measures) -> Iterator[str]:
    loose, crowded = int((edges.faces == 1).sum()), int((edges.faces > 2).sum())
    twice = len(mesh.triangles) - len(np.unique(np.sort(mesh.triangles, axis=1), axis=0))
    if loose:
        yield f"open mesh: {loose} of {len(edges.faces)} edges belong to one triangle only"
    if 2 * twice == len(mesh.triangles):
        yield "duplicated body: every triangle is there twice"
    elif twice:
        yield f"doubled surface: {twice} triangles are there twice"
    if crowded:
        yield f"not manifold: {crowded} edges belong to more than two triangles"
    if measures.closed and not measures.consistent:
        yield "inconsistent winding: neighbouring triangles face opposite ways"
    if measures.closed and measures.consistent and measures.volume < 0:
        yield f"inverted mesh: more faces point inward than outward (volume {measures.volume:g})"
    elif measures.closed and measures.consistent and measures.volume == 0:
        yield "flat mesh: it encloses no volume"


def _bodies(mesh: Mesh, measures: Measures, hidden: SceneHidden) -> Iterator[str]:
    bodies = measures.bodies - measures.cavities
    if measures.closed and bodies != hidden.bodies:
        word = "multi-body" if bodies > hidden.bodies else "too few bodies"
        yield f"{word}: {bodies} where {hidden.bodies} is wanted"
    if measures.closed and measures.cavities != hidden.cavities and measures.volume > 0:
        yield (f"hidden geometry: {measures.cavities} closed parts face inward (cavities) where {hidden.cavities} "
               "is wanted")
    if 1 < measures.bodies <= _COMPARED and (copies := _copies(mesh)):
        yield f"duplicated body: {copies} closed parts have the shape and place of another one"


_COMPARED = 200


def _copies(mesh: Mesh) -> int:
    """Parts with the same number of triangles, volume and box as another one, up to rounding."""
    part = parts(mesh)
    signed = np.bincount(part, weights=signed_volumes(mesh))
    a, b, c = mesh.corners()
    low, high = np.minimum(np.minimum(a, b), c), np.maximum(np.maximum(a, b), c)
    size = float((mesh.points.max(axis=0) - mesh.points.min(axis=0)).max()) or 1.0
    seen: list[tuple[int, np.ndarray]] = []  # type: ignore[type-arg]
    copies = 0
    for index in range(len(signed)):
        own = part == index
        row = np.concatenate([[np.cbrt(abs(signed[index]))], low[own].min(axis=0), high[own].max(axis=0)])
        if any(int(own.sum()) == count and np.abs(row - other).max() < 1e-3 * size for count, other in seen):
            copies += 1
        seen.append((int(own.sum()), row))
    return copies


def _space(covered: Overlap, hidden: SceneHidden) -> Iterator[str]:
    if covered.doubled > hidden.overlap:
        yield (f"overlapping geometry: {covered.doubled:.1%} of the matter is covered more than once "
               "(a body in another, or a shell that passes through itself)")
    if covered.inverted > hidden.overlap:
        yield f"inverted geometry: {covered.inverted:.1%} of what the surface encloses lies outside of it"


def _triangles(mesh: Mesh) -> Iterator[str]:
    size = float((mesh.points.max(axis=0) - mesh.points.min(axis=0)).max())
    slivers = int((areas(mesh) <= _SLIVER * size * size).sum()) + mesh.dropped
    if slivers:
        yield f"zero-area triangles: {slivers} ({mesh.dropped} were left out)"
