"""3MF: a zip package whose 3D model part is XML. Nothing is unpacked to disk; nothing outside the package is opened.
Objects may lie in further parts of the package (the production extension, as slicers write it).

Refused: entries that unpack to more than the cap allows (zip bombs), targets that lead out of the package, document
types and entities, components that contain themselves or multiply beyond the cap. Lengths become millimetres.
"""

from __future__ import annotations

import posixpath
import xml.parsers.expat as expat
import zipfile
import zlib
from collections.abc import Iterator
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
    object: tuple[str, str]
    """Part of the package, and the object's id in it."""
    transform: Transform


class _Object(NamedTuple):
    mesh: Builder
    uses: list[_Use]


def read(data: bytes, builder: Builder) -> None:
    if data.count(b"PK\x01\x02") > _ENTRIES_LIMIT:
        raise MeshError(f"a package of more than {_ENTRIES_LIMIT} entries")
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            package = _Package(archive, (1 << 20) + _XML_A_TRIANGLE * builder.max_triangles)
            root = _model_path(package.part("_rels/.rels"))
            model = _Model(builder.max_triangles)
            model.read(root, package)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, ValueError, zlib.error) as wrong:
        if isinstance(wrong, MeshError):
            raise
        raise MeshError(f"not a readable zip package ({wrong})"[:200]) from None
    _Placed(model, builder).place()


class _Package:
    """Parts by name, which is the same in capital letters. Together they never unpack to more than `limit` bytes,
    whatever their headers say."""

    def __init__(self, archive: zipfile.ZipFile, limit: int) -> None:
        self._archive, self._limit, self._left = archive, limit, limit
        self._infos = {info.filename.lstrip("/").lower(): info for info in archive.infolist()}

    def part(self, name: str) -> bytes:
        info = self._infos.get(name.lower())
        if info is None:
            raise MeshError(f"a package without {name[:100]}")
        with self._archive.open(info) as entry:
            found = entry.read(self._left + 1)
        self._left -= len(found)
        if self._left < 0:
            raise MeshError(f"{name[:100]} unpacks to more than {self._limit} bytes from {info.compress_size}")
        return found


def _model_path(text: bytes) -> str:
    targets: list[str] = []

    def start(name: str, attributes: dict[str, str]) -> None:
        if name.rpartition(":")[2] == "Relationship" and attributes.get("Type") == _MODEL:
            targets.append(attributes.get("Target", ""))

    _parse(text, start, None)
    if not targets:
        raise MeshError("a package that names no 3D model")
    return _inside(targets[0])


def _inside(target: str) -> str:
    if ".." in target.split("/") or "://" in target or "\\" in target:
        raise MeshError(f"the model's path leads out of the package: {target[:100]}")
    return posixpath.normpath(target.lstrip("/"))


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
        self.unit = ""
        self.objects: dict[tuple[str, str], _Object] = {}
        self.items: list[_Use] = []
        self._part = ""
        self._current: _Object | None = None

    @property
    def scale(self) -> float:
        return _UNITS[self.unit]

    def read(self, root: str, package: _Package) -> None:
        """The root part, and the parts that it uses."""
        self._parse(root, package)
        items, known = self.items, {root}
        while wanted := {use.object[0] for use in (*items, *self._inner())} - known:
            for part in sorted(wanted):
                self._parse(part, package)
            known |= wanted
        self.items = items  # other parts' builds say nothing of this one

    def _inner(self) -> Iterator[_Use]:
        return (use for found in self.objects.values() for use in found.uses)

    def _parse(self, part: str, package: _Package) -> None:
        self._part, self._current, self.items = part, None, []
        _parse(package.part(part), self._start, self._end)

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
                self._current.uses.append(self._use(attributes))
            elif name == "item":
                self.items.append(self._use(attributes))
            elif name == "model":
                self._set_unit(attributes.get("unit", "millimeter"))
        except KeyError as wrong:
            raise MeshError(f"a 3MF {name} without or with an unknown {wrong}") from None
        except ValueError as wrong:
            raise wrong if isinstance(wrong, MeshError) else MeshError(f"a 3MF {name} with a bad number") from None

    def _set_unit(self, unit: str) -> None:
        if unit not in _UNITS or unit != (self.unit or unit):
            raise MeshError(f"a 3MF model in an unknown unit, or parts in several: {unit[:40]}")
        self.unit = unit

    def _use(self, attributes: dict[str, str]) -> _Use:
        path = next((value for key, value in attributes.items() if key.rpartition(":")[2] == "path"), "")
        part = _inside(path) if path else self._part
        return _Use((part, attributes["objectid"]), _transform(attributes.get("transform")))

    def _open(self, name: str) -> None:
        if (self._part, name) in self.objects or len(self.objects) >= _OBJECTS_LIMIT:
            raise MeshError(f"object {name[:40]} is there twice, or there are too many")
        self._current = self.objects[self._part, name] = _Object(Builder(self.max_triangles), [])

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
            raise MeshError(f"object {use.object[1][:40]} is not there")
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
