"""What can be measured of a mesh. Exactly rounded sums in a fixed order, so numbers are equal on every machine.

Closed surface: every edge is used once in each direction. Then volume by the divergence theorem is meaningful, and
negative where the surface is inside out.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from verifiers.scene.mesh import Floats, Ints, Mesh, Point


class Measures(NamedTuple):
    """Lengths in the file's unit. `closed` and `consistent` together make `volume` mean something."""

    triangles: int
    closed: bool
    """Every edge belongs to exactly two triangles."""
    consistent: bool
    """Every edge is walked once in each direction."""
    volume: float
    area: float
    extents: tuple[float, float, float]
    corner: Point
    """Lowest corner of the bounding box."""
    bodies: int
    """Connected parts of the surface; a hollow body has two."""
    cavities: int
    """Parts with a negative volume of their own: the inner walls of hollow bodies, or bodies that are inside out."""
    euler: int
    """Vertices - edges + triangles: 2 for each part without holes."""
    centroid: Point
    """Centre of the volume, from the lowest corner. The lowest corner itself where there is no volume."""


class Edges(NamedTuple):
    """Undirected edges with the number of triangles at each, and the number of walks in each direction."""

    ends: Ints
    faces: Ints
    forward: Ints


def edges_of(mesh: Mesh) -> Edges:
    count = len(mesh.points)
    start = mesh.triangles.reshape(-1)
    stop = np.roll(mesh.triangles, -1, axis=1).reshape(-1)
    keys = np.minimum(start, stop) * count + np.maximum(start, stop)
    found, inverse, faces = np.unique(keys, return_inverse=True, return_counts=True)
    forward = np.bincount(inverse[start < stop], minlength=len(found))
    return Edges(np.column_stack([found // count, found % count]), faces, forward)


def measure(mesh: Mesh, edges: Edges | None = None) -> Measures:
    edges = edges or edges_of(mesh)
    low, high = mesh.points.min(axis=0), mesh.points.max(axis=0)
    signed = signed_volumes(mesh)
    volume = math.fsum(signed.tolist())
    part = parts(mesh)
    own = np.bincount(part, weights=signed)
    extents = [float(value) for value in high - low]
    corner = [float(value) for value in low]
    return Measures(
        triangles=len(mesh.triangles), closed=bool((edges.faces == 2).all()),
        consistent=bool((edges.forward <= 1).all() and (edges.faces - edges.forward <= 1).all()),
        volume=volume, area=math.fsum(areas(mesh).tolist()), extents=(extents[0], extents[1], extents[2]),
        corner=(corner[0], corner[1], corner[2]), bodies=len(own), cavities=int((own < 0).sum()),
        euler=len(mesh.points) - _unused(mesh) - len(edges.faces) + len(mesh.triangles),
        centroid=_centroid(mesh, signed, volume, low))


def cross(a: Floats, b: Floats) -> Floats:
    """Without a library call whose rounding may differ between machines."""
    ax, ay, az = a.T
    bx, by, bz = b.T
    return np.column_stack([ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx])


def dot(a: Floats, b: Floats) -> Floats:
    return a[:, 0] * b[:, 0] + a[:, 1] * b[:, 1] + a[:, 2] * b[:, 2]


def signed_volumes(mesh: Mesh) -> Floats:
    """Of tetrahedra on the mesh's first point: near the mesh, so that a far origin costs no digits."""
    a, b, c = (corner - mesh.points[0] for corner in mesh.corners())
    return dot(a, cross(b, c)) / 6


def areas(mesh: Mesh) -> Floats:
    a, b, c = mesh.corners()
    normal = cross(b - a, c - a)
    return np.sqrt(dot(normal, normal)) / 2


def _unused(mesh: Mesh) -> int:
    return len(mesh.points) - int(np.count_nonzero(np.bincount(mesh.triangles.reshape(-1), minlength=len(mesh.points))))


def _centroid(mesh: Mesh, signed: Floats, volume: float, low: Floats) -> Point:
    if volume == 0:
        return (0.0, 0.0, 0.0)
    origin = mesh.points[0]
    a, b, c = (corner - origin for corner in mesh.corners())
    middle = (a + b + c) / 4
    at = [math.fsum((middle[:, axis] * signed).tolist()) / volume + float(origin[axis] - low[axis])
          for axis in range(3)]
    return (at[0], at[1], at[2])


def parts(mesh: Mesh) -> Ints:
    """For each triangle which connected part it belongs to, counted from 0 in the order of first vertices."""
    label = np.arange(len(mesh.points))
    while True:
        lowest = label[mesh.triangles].min(axis=1)
        after = label.copy()
        for corner in mesh.triangles.T:
            np.minimum.at(after, label[corner], lowest)
            np.minimum.at(after, corner, lowest)
        after = after[after]
        if (after == label).all():
            return np.unique(label[mesh.triangles[:, 0]], return_inverse=True)[1]
        label = after


def winding(mesh: Mesh, probe: Point) -> float:
    """How often the surface winds around `probe`: 1 inside, 0 outside, for a closed surface that faces outward.

    Sum of the solid angles of the triangles (van Oosterom and Strackee, 1983).
    """
    a, b, c = (corner - np.array(probe) for corner in mesh.corners())
    la, lb, lc = np.sqrt(dot(a, a)), np.sqrt(dot(b, b)), np.sqrt(dot(c, c))
    below = la * lb * lc + dot(a, b) * lc + dot(b, c) * la + dot(c, a) * lb
    return math.fsum(np.arctan2(dot(a, cross(b, c)), below).tolist()) / (2 * math.pi)


def crossings(mesh: Mesh, start: Point, direction: Point) -> list[float]:
    """Distances from `start` at which a ray meets the surface; where it meets an edge of two triangles counts once."""
    along = np.array(direction, dtype=np.float64)
    along = along / math.sqrt(float(along @ along))
    a, b, c = mesh.corners()
    ab, ac = b - a, c - a
    rows = np.broadcast_to(along, a.shape)
    side = cross(rows, ac)
    size = dot(ab, side)
    with np.errstate(all="ignore"):
        from_a = np.array(start) - a
        u = dot(from_a, side) / size
        other = cross(from_a, ab)
        v = dot(rows, other) / size
        distance = dot(ac, other) / size
        hit = (np.abs(size) > 0) & (u >= -1e-12) & (v >= -1e-12) & (u + v <= 1 + 1e-12) & (distance >= 0)
    found = sorted(distance[hit].tolist())
    near = 1e-7 * float((mesh.points.max(axis=0) - mesh.points.min(axis=0)).max())
    return [value for at, value in enumerate(found) if not at or value - found[at - 1] > near]
