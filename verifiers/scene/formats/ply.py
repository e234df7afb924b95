"""PLY: ASCII, binary little and big endian. Elements `vertex` (x, y, z) and `face` (vertex_indices); others are
passed over."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from verifiers.scene.formats.text import rows, whole
from verifiers.scene.mesh import Builder, Floats, Ints, MeshError

_TYPES = {
    "char": "i1", "int8": "i1", "uchar": "u1", "uint8": "u1", "short": "i2", "int16": "i2", "ushort": "u2",
    "uint16": "u2", "int": "i4", "int32": "i4", "uint": "u4", "uint32": "u4", "float": "f4", "float32": "f4",
    "double": "f8", "float64": "f8"}
_CODES = {"i1": "b", "u1": "B", "i2": "h", "u2": "H", "i4": "i", "u4": "I", "f4": "f", "f8": "d"}
_ORDERS = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}
_HEADER_LIMIT = 64 << 10
_NO_ELEMENT = 2**31


class Property(NamedTuple):
    name: str
    kind: str
    length: str = ""
    """Type of a list's length; empty: one value."""


class Element(NamedTuple):
    name: str
    rows: int
    properties: list[Property]


def read(data: bytes, builder: Builder) -> None:
    order, elements, start = _header(data)
    sizes = {element.name: element.rows for element in elements}
    builder.expect(sizes.get("vertex", 0), sizes.get("face", 0))
    if any(element.rows > 3 * builder.max_triangles or not element.properties for element in elements):
        raise MeshError("a PLY element with too many rows, or without properties")
    points: Floats | None = None
    faces: list[list[int]] | Ints = []
    reader = _Binary(data, start, order) if order else _Ascii(data, start)
    for element in elements:
        if element.name == "vertex":
            points = reader.vertices(element)
        elif element.name == "face":
            faces = reader.faces(element)
        else:
            reader.skip(element)
    if points is None:
        raise MeshError("a PLY file without vertices")
    if isinstance(faces, np.ndarray):
        builder.take(points, faces)
        return
    builder.take(points, np.empty((0, 3), dtype=np.int64))
    for face in faces:
        builder.face(face)


def _header(data: bytes) -> tuple[str, list[Element], int]:
    end = data.find(b"end_header", 0, _HEADER_LIMIT)
    if data[:3] != b"ply" or end < 0:
        raise MeshError("a PLY file starts with `ply` and has an `end_header`")
    start = data.find(b"\n", end) + 1
    if not start:
        raise MeshError("the file ends with its header")
    order: str | None = None
    elements: list[Element] = []
    for line in data[3:end].decode("latin-1").splitlines():
        words = line.split()
        if not words or words[0] in ("comment", "obj_info"):
            continue
        if words[0] == "format" and len(words) > 1 and words[1] in _ORDERS:
            order = _ORDERS[words[1]]
        elif words[0] == "element" and len(words) == 3:
            elements.append(Element(words[1], whole(words[2].encode()), []))
        elif words[0] == "property" and elements:
            elements[-1].properties.append(_property(words[1:]))
        else:
            raise MeshError(f"a PLY header with the line `{line[:80]}`")
    if order is None:
        raise MeshError("a PLY header without a format that is known")
    if any(not 0 <= element.rows < _NO_ELEMENT for element in elements):
        raise MeshError("the header has a count out of range")
    return order, elements, start


def _property(words: list[str]) -> Property:
    try:
        if words[0] == "list":
            _, count, kind, name = words
            return Property(name, _TYPES[kind], _TYPES[count])
        kind, name = words
        return Property(name, _TYPES[kind])
    except (KeyError, ValueError, IndexError):
        raise MeshError(f"a PLY property that is not known: {' '.join(words)[:80]}") from None


def _places(element: Element) -> list[int]:
    names = [one.name for one in element.properties]
    if any(axis not in names for axis in "xyz") or any(one.length for one in element.properties):
        raise MeshError("PLY vertices need x, y and z and no lists")
    return [names.index(axis) for axis in "xyz"]


def _corners_at(element: Element) -> int:
    for at, one in enumerate(element.properties):
        if one.name in ("vertex_indices", "vertex_index") and one.length and one.kind[0] in "iu":
            return at
    raise MeshError("PLY faces need a list of vertex_indices")


class _Ascii:
    def __init__(self, data: bytes, start: int) -> None:
        self.rows = rows(data, start)

    def _lines(self, element: Element) -> Iterator[list[bytes]]:
        for _ in range(element.rows):
            row = next(self.rows, None)
            if row is None:
                raise MeshError(f"fewer lines than the header says for `{element.name}`")
            yield row

    def vertices(self, element: Element) -> Floats:
        places = _places(element)
        try:
            found = [[float(row[place]) for place in places] for row in self._lines(element)]
        except (ValueError, IndexError) as wrong:
            raise wrong if isinstance(wrong, MeshError) else MeshError("a vertex is not three numbers") from None
        return np.array(found, dtype=np.float64).reshape(-1, 3)

    def faces(self, element: Element) -> list[list[int]]:
        wanted = _corners_at(element)
        return [self._lists(row, element)[wanted] for row in self._lines(element)]

    @staticmethod
    def _lists(row: list[bytes], element: Element) -> list[list[int]]:
        found, at = [], 0
        for one in element.properties:
            count = whole(row[at]) if one.length and at < len(row) else 1
            at += bool(one.length)
            if count < 0 or at + count > len(row):
                raise MeshError("a face has fewer corners than it says")
            found.append([whole(word) for word in row[at:at + count]] if one.length and one.kind[0] in "iu" else [])
            at += count
        return found

    def skip(self, element: Element) -> None:
        for _ in self._lines(element):
            pass


class _Binary:
    def __init__(self, data: bytes, start: int, order: str) -> None:
        self.data, self.at, self.order = data, start, order

    def _fits(self, element: Element, least: int) -> None:
        if element.rows * least > len(self.data) - self.at:
            raise MeshError(f"the file ends before the {element.rows} of `{element.name}` that its header says")

    def _table(self, element: Element, lengths: dict[str, int]) -> np.ndarray:  # type: ignore[type-arg]
        fields: list[tuple[str, str] | tuple[str, str, int]] = []
        for at, one in enumerate(element.properties):
            if one.length:
                fields.append((f"count{at}", self.order + one.length))
            fields.append((f"p{at}", self.order + one.kind, lengths.get(one.name, 1)))
        shape = np.dtype(fields)
        self._fits(element, shape.itemsize)
        table = np.frombuffer(self.data, shape, element.rows, self.at)
        return table

    def vertices(self, element: Element) -> Floats:
        places = _places(element)
        table = self._table(element, {})
        self.at += table.nbytes
        with np.errstate(invalid="ignore"):
            return np.column_stack([table[f"p{place}"].astype(np.float64).reshape(-1) for place in places])

    def faces(self, element: Element) -> list[list[int]] | Ints:
        """Triangles alone in one piece; other polygons one by one."""
        wanted = _corners_at(element)
        self._fits(element, sum(self._least(one) for one in element.properties))
        if all(not one.length or at == wanted for at, one in enumerate(element.properties)) and self._room(element):
            table = self._table(element, {element.properties[wanted].name: 3})
            if (table[f"count{wanted}"] == 3).all():
                self.at += table.nbytes
                return table[f"p{wanted}"].astype(np.int64)
        return [self._row(element)[wanted] for _ in range(element.rows)]

    def _room(self, element: Element) -> bool:
        """Whether the rest could hold triangles alone (a file with a two-cornered face may be shorter)."""
        size = sum(int(one.kind[1]) * (3 if one.length else 1) + int(one.length[1:] or 0) for one in element.properties)
        return element.rows * size <= len(self.data) - self.at

    @staticmethod
    def _least(one: Property) -> int:
        return int(one.length[1]) if one.length else int(one.kind[1])

    def _row(self, element: Element) -> list[list[int]]:
        found: list[list[int]] = []
        for one in element.properties:
            count = int(self._take(_CODES[one.length], 1)[0]) if one.length else 1
            values = self._take(_CODES[one.kind], count)
            found.append([int(value) for value in values] if one.length and one.kind[0] in "iu" else [])
        return found

    def _take(self, code: str, count: int) -> tuple[float, ...]:
        if not 0 <= count <= len(self.data):
            raise MeshError("a list with a length out of range")
        size = struct.calcsize(f"{self.order}{count}{code}")
        if self.at + size > len(self.data):
            raise MeshError("the file ends within a face")
        values = struct.unpack_from(f"{self.order}{count}{code}", self.data, self.at)
        self.at += size
        return values

    def skip(self, element: Element) -> None:
        self._fits(element, sum(self._least(one) for one in element.properties))
        if any(one.length for one in element.properties):
            for _ in range(element.rows):
                self._row(element)
        else:
            self.at += self._table(element, {}).nbytes
