"""3MF: a zip package whose 3D model part is XML. Nothing is unpacked to disk; nothing outside the package is opened.

Refused: entries that unpack to more than the cap allows (zip bombs), targets that lead out of the package, document
types and entities, components that contain themselves or multiply beyond the cap. Lengths become millimetres.
"""

from __future__ import annotations

import posixpath
import xml.parsers.expat as expat
import zipfile
import zlib
from io import BytesIO
from typing import NamedTuple

import numpy as np

from verifiers.scene.mesh import Builder, Floats, Ints, MeshError

_MODEL = "http://schemas.microsoft.com/3dmanufacturing/2013/01/3dmodel"
_UNITS = {"micron": 1e-3, "millimeter": 1.0, "centimeter": 10.0, "inch": 25.4, "foot": 304.8, "meter": 1000.0}
_ENTRIES_LIMIT = 2000
_OBJECTS_LIMIT = 10_000
_ELEMENTS_BESIDE = 100_000
_XML_A_TRIANGLE = 600
_DEPTH_LIMIT = 16
_USES_LIMIT = 10_000
Transform = tuple[Floats, Floats]
"""Rows of the 3 x 3 part, and the translation."""


class _Use(NamedTuple):
    object: str
    transform: Transform


class _Object(NamedTuple):
    mesh: Builder
    uses: list[_Use]


def read(data: bytes, builder: Builder) -> None:
    limit = (1 << 20) + _XML_A_TRIANGLE * builder.max_triangles
    if data.count(b"PK\x01\x02") > _ENTRIES_LIMIT:
        raise MeshError(f"a package of more than {_ENTRIES_LIMIT} entries")
    try:
        with zipfile.ZipFile(BytesIO(data)) as package:
            path = _model_path(_entry(package, "_rels/.rels", 1 << 20))
            text = _entry(package, path, limit)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, ValueError, zlib.error) as wrong:
        if isinstance(wrong, MeshError):
            raise
        raise MeshError(f"not a readable zip package ({wrong})"[:200]) from None
    model = _Model(builder.max_triangles)
    model.parse(text)
    _Placed(model, builder).place()


def _entry(package: zipfile.ZipFile, name: str, limit: int) -> bytes:
    """An entry's bytes, never more than `limit`, whatever its header says."""
    try:
        info = package.getinfo(name)
    except KeyError:
        raise MeshError(f"a package without {name}") from None
    with package.open(info) as entry:
        found = entry.read(limit + 1)
    if len(found) > limit:
        raise MeshError(f"{name} unpacks to more than {limit} bytes from {info.compress_size}")
    return found


def _model_path(text: bytes) -> str:
    targets: list[str] = []

    def start(name: str, attributes: dict[str, str]) -> None:
        if name.rpartition(":")[2] == "Relationship" and attributes.get("Type") == _MODEL:
            targets.append(attributes.get("Target", ""))

    _parse(text, start, None)
    if not targets:
        raise MeshError("a package that names no 3D model")
    path = posixpath.normpath(targets[0].lstrip("/"))
    if ".." in targets[0].split("/") or "://" in targets[0] or "\\" in targets[0]:
        raise MeshError(f"the model's path leads out of the package: {targets[0][:100]}")
    return path


def _parse(text: bytes, start: object, end: object) -> None:
    parser = expat.ParserCreate()
    parser.StartElementHandler = start  # type: ignore[assignment]
    parser.EndElementHandler = end  # type: ignore[assignment]
    parser.StartDoctypeDeclHandler = _refuse_doctype
    try:
        parser.Parse(text, True)
    except expat.ExpatError as wrong:
        raise MeshError(f"XML that cannot be read ({wrong})") from None


def _refuse_doctype(*_: object) -> None:
    raise MeshError("XML with a document type: entities are not read")


class _Model:
    def __init__(self, max_triangles: int) -> None:
        self.max_triangles = max_triangles
        self.read_triangles = self.elements = 0
        self.scale = 1.0
        self.objects: dict[str, _Object] = {}
        self.items: list[_Use] = []
        self._current: _Object | None = None

    def parse(self, text: bytes) -> None:
        _parse(text, self._start, self._end)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        name = name.rpartition(":")[2]
        self.elements += 1
        if self.elements > _ELEMENTS_BESIDE + 8 * self.max_triangles:
            raise MeshError(f"more XML elements than {self.max_triangles} triangles need")
        try:
            if name == "vertex" and self._current:
                self._current.mesh.point([attributes["x"], attributes["y"], attributes["z"]])
            elif name == "triangle" and self._current:
                self._current.mesh.face([int(attributes["v1"]), int(attributes["v2"]), int(attributes["v3"])])
                self.read_triangles += 1
                if self.read_triangles > self.max_triangles:
                    raise MeshError(f"more than {self.max_triangles} triangles")
            elif name == "object":
                self._open(attributes["id"])
            elif name == "component" and self._current:
                self._current.uses.append(_Use(attributes["objectid"], _transform(attributes.get("transform"))))
            elif name == "item":
                self.items.append(_Use(attributes["objectid"], _transform(attributes.get("transform"))))
            elif name == "model":
                self.scale = _UNITS[attributes.get("unit", "millimeter")]
        except KeyError as wrong:
            raise MeshError(f"a 3MF {name} without or with an unknown {wrong}") from None
        except ValueError as wrong:
            raise wrong if isinstance(wrong, MeshError) else MeshError(f"a 3MF {name} with a bad number") from None

    def _open(self, name: str) -> None:
        if name in self.objects or len(self.objects) >= _OBJECTS_LIMIT:
            raise MeshError(f"object {name[:40]} is there twice, or there are too many")
        self._current = self.objects[name] = _Object(Builder(self.max_triangles), [])

    def _end(self, name: str) -> None:
        if name.rpartition(":")[2] == "object":
            self._current = None


def _transform(text: str | None) -> Transform:
    if not text:
        return np.eye(3), np.zeros(3)
    numbers = [float(word) for word in text.split()]
    if len(numbers) != 12:
        raise MeshError("a transform is not twelve numbers")
    rows = np.array(numbers).reshape(4, 3)
    return rows[:3], rows[3]


def _determinant(matrix: Floats) -> float:
    return float(np.dot(matrix[0], np.cross(matrix[1], matrix[2])))


class _Placed:
    """The build: every item, and its components, where its transform puts it."""

    def __init__(self, model: _Model, builder: Builder) -> None:
        self.model, self.builder = model, builder
        self.uses = self.triangles = 0
        self.points: list[Floats] = []
        self.faces: list[Ints] = []
        self.offset = 0

    def place(self) -> None:
        for item in self.model.items:
            self._add(item, (np.eye(3), np.zeros(3)), 0)
        if not self.faces:
            raise MeshError("a build without a mesh")
        self.builder.take(np.concatenate(self.points) * self.model.scale, np.concatenate(self.faces))

    def _add(self, use: _Use, outer: Transform, depth: int) -> None:
        self.uses += 1
        if depth > _DEPTH_LIMIT or self.uses > _USES_LIMIT:
            raise MeshError("components contain each other too deeply or too often")
        found = self.model.objects.get(use.object)
        if found is None:
            raise MeshError(f"object {use.object[:40]} is not there")
        with np.errstate(all="ignore"):
            matrix = use.transform[0] @ outer[0]
            shift = use.transform[1] @ outer[0] + outer[1]
        if found.mesh.triangles:
            self._add_mesh(found.mesh, matrix, shift)
        for inner in found.uses:
            self._add(inner, (matrix, shift), depth + 1)

    def _add_mesh(self, mesh: Builder, matrix: Floats, shift: Floats) -> None:
        self.triangles += mesh.triangles
        self.builder.expect(0, self.triangles)
        points, faces = mesh.arrays()
        with np.errstate(all="ignore"):  # what is not finite is refused with all other coordinates
            mirrored = _determinant(matrix) < 0
            x, y, z = points.T[:, :, None]
            self.points.append(x * matrix[0] + y * matrix[1] + z * matrix[2] + shift)
        self.faces.append((faces[:, ::-1] if mirrored else faces) + self.offset)
        self.offset += len(points)
