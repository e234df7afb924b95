"""Triangle meshes as plain data, parsed strictly from untrusted bytes: OBJ, OFF, STL (ASCII and binary).

A file that is not what it says, has an index out of range or a number that is not finite, or exceeds the caps is
refused with a reason (MeshError). Corners at one position are one vertex, since STL and exporters repeat them: within
1e-8 of the mesh's size. Triangles that have no three different corners are dropped. Nothing else is repaired.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Callable, Iterable
from typing import NamedTuple

Point = tuple[float, float, float]
Triangle = tuple[int, int, int]
MAX_BYTES = 8 << 20
MAX_TRIANGLES = 50_000
MAX_COORDINATE = 1e9
MERGE = 1e-8


class MeshError(ValueError):
    """Why bytes are not a mesh that we accept."""


class Mesh(NamedTuple):
    points: list[Point]
    triangles: list[Triangle]


class _Builder:
    def __init__(self, max_triangles: int) -> None:
        self.max_triangles = max_triangles
        self.points: list[Point] = []
        self.triangles: list[Triangle] = []

    def point(self, numbers: Iterable[float | str | bytes]) -> int:
        try:
            x, y, z = (float(number) + 0.0 for number in numbers)
        except ValueError:
            raise MeshError("a vertex is not three numbers") from None
        if not all(math.isfinite(value) and abs(value) <= MAX_COORDINATE for value in (x, y, z)):
            raise MeshError("a coordinate is not finite or too large")
        self.points.append((x, y, z))
        if len(self.points) > 3 * self.max_triangles:
            raise MeshError(f"more vertices than {self.max_triangles} triangles need")
        return len(self.points) - 1

    def face(self, corners: list[int]) -> None:
        """A polygon as a fan of triangles."""
        if len(corners) < 3:
            raise MeshError("a face has fewer than three corners")
        for second, third in itertools.pairwise(corners[1:]):
            self.triangles.append((corners[0], second, third))
        if len(self.triangles) > self.max_triangles:
            raise MeshError(f"more than {self.max_triangles} triangles")

    def mesh(self) -> Mesh:
        if not self.triangles:
            raise MeshError("no faces")
        points, index = _merged(self.points)
        triangles = [(index[a], index[b], index[c]) for a, b, c in self.triangles]
        solid = [triangle for triangle in triangles if len(set(triangle)) == 3]
        if not solid:
            raise MeshError("no face with three different corners")
        return Mesh(points, solid)


def _merged(points: list[Point]) -> tuple[list[Point], list[int]]:
    """Different points, and for each given point which of them it is."""
    grid = MERGE * max(max(axis) - min(axis) for axis in zip(*points, strict=True)) or 1.0
    kept: list[Point] = []
    cells: dict[tuple[int, int, int], int] = {}
    index = []
    for x, y, z in points:
        cell = (round(x / grid), round(y / grid), round(z / grid))
        at = cells.setdefault(cell, len(kept))
        if at == len(kept):
            kept.append((x, y, z))
        index.append(at)
    return kept, index


def parse_mesh(data: bytes, name: str, max_triangles: int = MAX_TRIANGLES) -> Mesh:
    """The mesh in a file called `name`; its ending says the format."""
    if len(data) > MAX_BYTES:
        raise MeshError(f"larger than {MAX_BYTES} bytes")
    ending = name.rpartition(".")[2].lower()
    parser = _PARSERS.get(ending)
    if parser is None:
        raise MeshError(f"unknown mesh format `.{ending}`")
    builder = _Builder(max_triangles)
    parser(data, builder)
    return builder.mesh()


def _lines(data: bytes) -> list[list[str]]:
    try:
        text = data.decode("ascii")
    except UnicodeDecodeError:
        raise MeshError("not an ASCII file") from None
    lines = (line.partition("#")[0].split() for line in text.splitlines())
    return [line for line in lines if line]


def _parse_obj(data: bytes, builder: _Builder) -> None:
    """`v` and `f`; other statements (normals, groups, materials) have no geometry of their own."""
    vertices: list[int] = []
    for word, *rest in _lines(data):
        if word == "v":
            if len(rest) not in (3, 4, 6):
                raise MeshError("a vertex is not three numbers")
            vertices.append(builder.point(rest[:3]))
        elif word == "f":
            builder.face([_corner(part, vertices) for part in rest])


def _corner(part: str, vertices: list[int]) -> int:
    """`7`, `7/1`, `7//2`, `7/1/2`; negative counts from the end."""
    try:
        index = int(part.partition("/")[0])
    except ValueError:
        raise MeshError("a face has a corner that is no index") from None
    index = index - 1 if index > 0 else len(vertices) + index if index < 0 else -1
    return _vertex(index, vertices)


def _vertex(index: int, vertices: list[int]) -> int:
    if not 0 <= index < len(vertices):
        raise MeshError("a face names a vertex that is not there")
    return vertices[index]


def _parse_off(data: bytes, builder: _Builder) -> None:
    lines = _lines(data)
    if not lines or lines[0][0] != "OFF":
        raise MeshError("an OFF file starts with `OFF`")
    rows = lines[1:] if len(lines[0]) == 1 else [lines[0][1:], *lines[1:]]
    try:
        vertex_count, face_count = int(rows[0][0]), int(rows[0][1])
        if vertex_count < 0 or face_count < 0 or len(rows) - 1 < vertex_count + face_count:
            raise MeshError("fewer lines than the header says")
        vertices = [builder.point(row[:3]) for row in rows[1:1 + vertex_count]]
        for row in rows[1 + vertex_count:1 + vertex_count + face_count]:
            corners = [int(part) for part in row[1:1 + int(row[0])]]
            if len(corners) != int(row[0]):
                raise MeshError("a face has fewer corners than it says")
            builder.face([_vertex(corner, vertices) for corner in corners])
    except (IndexError, ValueError) as wrong:
        raise wrong if isinstance(wrong, MeshError) else MeshError("a line of the OFF file is not numbers") from None


def _parse_stl(data: bytes, builder: _Builder) -> None:
    """Binary if its length is what its triangle count asks for: some binary files start with `solid`, too."""
    if len(data) >= 84 and len(data) == 84 + 50 * struct.unpack_from("<I", data, 80)[0]:
        _parse_binary_stl(data, builder)
    elif data.lstrip()[:5] == b"solid":
        _parse_ascii_stl(data, builder)
    else:
        raise MeshError("neither an ASCII nor a binary STL file")


def _parse_binary_stl(data: bytes, builder: _Builder) -> None:
    if (len(data) - 84) // 50 > builder.max_triangles:
        raise MeshError(f"more than {builder.max_triangles} triangles")
    for numbers in struct.iter_unpack("<12fH", data[84:]):
        builder.face([builder.point(numbers[start:start + 3]) for start in (3, 6, 9)])


def _parse_ascii_stl(data: bytes, builder: _Builder) -> None:
    corners: list[int] = []
    for word, *rest in _lines(data)[1:]:
        if word == "vertex":
            corners.append(builder.point(rest))
        elif word == "endloop":
            if len(corners) != 3:
                raise MeshError("a facet has not three corners")
            builder.face(corners)
            corners = []


_PARSERS: dict[str, Callable[[bytes, _Builder], None]] = {"obj": _parse_obj, "off": _parse_off, "stl": _parse_stl}
