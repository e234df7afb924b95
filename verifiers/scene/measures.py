"""What can be measured of a mesh. Exactly rounded sums in a fixed order, so numbers are equal on every machine.

Closed surface: every edge is used once in each direction. Then volume by the divergence theorem is meaningful, and
negative where the surface is inside out.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import NamedTuple

from verifiers.scene.mesh import Mesh, Point


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
    euler: int
    """Vertices - edges + triangles: 2 for each body without holes."""


def measure(mesh: Mesh) -> Measures:
    used = sorted({index for triangle in mesh.triangles for index in triangle})
    directed = Counter((a, b) for x, y, z in mesh.triangles for a, b in ((x, y), (y, z), (z, x)))
    edges = Counter((min(edge), max(edge)) for edge in directed.elements())
    axes = [[mesh.points[index][axis] for index in used] for axis in range(3)]
    low, high = [min(axis) for axis in axes], [max(axis) for axis in axes]
    return Measures(
        triangles=len(mesh.triangles), closed=all(count == 2 for count in edges.values()),
        consistent=all(count == 1 for count in directed.values()),
        volume=math.fsum(_signed_volume(mesh, *triangle) for triangle in mesh.triangles),
        area=math.fsum(_area(mesh, *triangle) for triangle in mesh.triangles),
        extents=(high[0] - low[0], high[1] - low[1], high[2] - low[2]), corner=(low[0], low[1], low[2]),
        bodies=_bodies(mesh), euler=len(used) - len(edges) + len(mesh.triangles))


def _cross(a: Point, b: Point) -> Point:
    return (a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0])


def _dot(a: Point, b: Point) -> float:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def _minus(a: Point, b: Point) -> Point:
    return (a[0] - b[0], a[1] - b[1], a[2] - b[2])


def _signed_volume(mesh: Mesh, first: int, second: int, third: int) -> float:
    """Of the tetrahedron on the mesh's first point: near the mesh, so that a far origin costs no digits."""
    origin = mesh.points[0]
    a, b, c = (_minus(mesh.points[index], origin) for index in (first, second, third))
    return _dot(a, _cross(b, c)) / 6


def _area(mesh: Mesh, first: int, second: int, third: int) -> float:
    a, b, c = mesh.points[first], mesh.points[second], mesh.points[third]
    normal = _cross(_minus(b, a), _minus(c, a))
    return math.sqrt(_dot(normal, normal)) / 2


def _bodies(mesh: Mesh) -> int:
    """Connected parts, by union-find over the corners of triangles."""
    parent = list(range(len(mesh.points)))

    def root(index: int) -> int:
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = parent[index]
        return index

    for first, second, third in mesh.triangles:
        parent[root(second)] = root(first)
        parent[root(third)] = root(first)
    return len({root(triangle[0]) for triangle in mesh.triangles})


def winding(mesh: Mesh, probe: Point) -> float:
    """How often the surface winds around `probe`: 1 inside, 0 outside, for a closed surface that faces outward.

    Sum of the solid angles of the triangles (van Oosterom and Strackee, 1983).
    """
    total = []
    for triangle in mesh.triangles:
        a, b, c = (_minus(mesh.points[index], probe) for index in triangle)
        la, lb, lc = math.sqrt(_dot(a, a)), math.sqrt(_dot(b, b)), math.sqrt(_dot(c, c))
        below = la * lb * lc + _dot(a, b) * lc + _dot(b, c) * la + _dot(c, a) * lb
        total.append(math.atan2(_dot(a, _cross(b, c)), below))
    return math.fsum(total) / (2 * math.pi)
