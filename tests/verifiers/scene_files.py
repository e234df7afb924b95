"""Mesh files for tests, written by other code than the one that reads them."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Sequence

from tasks.shapes import Shape

RELS = ('<?xml version="1.0"?><Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
        '<Relationship Target="{}" Id="a" Type="http://schemas.microsoft.com/3dmanufacturing/2013/01/3dmodel"/>'
        "</Relationships>")


def triangles(shape: Shape) -> list[tuple[int, int, int]]:
    return [(face[0], face[at], face[at + 1]) for face in shape.faces for at in range(1, len(face) - 1)]


def joined(*shapes: Shape) -> Shape:
    """Several shapes in one file."""
    corners, faces = [], []
    for shape in shapes:
        faces += [[corner + len(corners) for corner in face] for face in shape.faces]
        corners += shape.corners
    return Shape(corners, faces)


def moved(shape: Shape, x: float, y: float | None = None, z: float | None = None) -> Shape:
    step = (x, x if y is None else y, x if z is None else z)
    return Shape([(a + step[0], b + step[1], c + step[2]) for a, b, c in shape.corners], shape.faces)


def scaled(shape: Shape, by: float) -> Shape:
    return Shape([(x * by, y * by, z * by) for x, y, z in shape.corners], shape.faces)


def binary_stl(shape: Shape, count: int | None = None) -> bytes:
    rows = [struct.pack("<12fH", 0, 0, 0, *(value for corner in triangle for value in shape.corners[corner]), 0)
            for triangle in triangles(shape)]
    return bytes(80) + struct.pack("<I", len(rows) if count is None else count) + b"".join(rows)


def binary_ply(shape: Shape, order: str, split: bool = True) -> bytes:
    """With properties and an element that nobody asked for; `split`: triangles alone."""
    faces: Sequence[Sequence[int]] = triangles(shape) if split else shape.faces
    name = {"<": "little", ">": "big"}[order]
    head = (f"ply\nformat binary_{name}_endian 1.0\ncomment x\nelement vertex {len(shape.corners)}\n"
            "property double x\nproperty double y\nproperty double z\nproperty uchar red\n"
            f"element edge 1\nproperty int a\nproperty list uchar short b\nelement face {len(faces)}\n"
            "property list uchar uint vertex_indices\nproperty float quality\nend_header\n")
    body = b"".join(struct.pack(f"{order}dddB", *corner, 255) for corner in shape.corners)
    body += struct.pack(f"{order}iB2h", 7, 2, 1, 2)
    body += b"".join(struct.pack(f"{order}B{len(face)}If", len(face), *face, 0.5) for face in faces)
    return head.encode() + body


def model(shape: Shape, unit: str = "millimeter", build: str = '<item objectid="1"/>', more: str = "") -> str:
    points = "".join(f'<vertex x="{x}" y="{y}" z="{z}"/>' for x, y, z in shape.corners)
    faces = "".join(f'<triangle v1="{a}" v2="{b}" v3="{c}"/>' for a, b, c in triangles(shape))
    return (f'<?xml version="1.0"?><model unit="{unit}" '
            'xmlns="http://schemas.microsoft.com/3dmanufacturing/core/2015/02"><resources><object id="1" type="model">'
            f"<mesh><vertices>{points}</vertices><triangles>{faces}</triangles></mesh></object>{more}</resources>"
            f"<build>{build}</build></model>")


def package(text: str | bytes, target: str = "/3D/model.model", name: str = "3D/model.model") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("_rels/.rels", RELS.format(target))
        archive.writestr(name, text)
    return out.getvalue()
