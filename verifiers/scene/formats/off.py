"""OFF: a header, counts, vertices, then polygons. Normals, colours and texture (COFF, NOFF, STOFF) are passed over.
Some files have their counts right behind the header's word (`OFF490 518 0`)."""

from __future__ import annotations

import re

from verifiers.scene.formats.text import rows, whole
from verifiers.scene.mesh import Builder, MeshError

_HEAD = re.compile(rb"(?:ST)?C?N?(4?n?)OFF(\d*)", re.IGNORECASE)


def read(data: bytes, builder: Builder) -> None:
    lines = rows(data)
    head = next(lines, [b""])
    word = _HEAD.fullmatch(head[0])
    if word is None:
        raise MeshError("an OFF file starts with `OFF`")
    if word[1] or head[1:2] == [b"BINARY"]:
        raise MeshError("an OFF file of another dimension, or a binary one: only plain ones are read")
    counts = ([word[2]] if word[2] else []) + head[1:] or next(lines, [])
    if len(counts) < 2:
        raise MeshError("an OFF file has its counts after `OFF`")
    vertices, faces = whole(counts[0]), whole(counts[1])
    builder.expect(vertices, faces)
    if 2 * (vertices + faces) > len(data):
        raise MeshError("fewer lines than the header says")
    for _ in range(vertices):
        builder.point(_row(lines)[:3])
    for _ in range(faces):
        row = _row(lines)
        count = whole(row[0])
        if count < 0 or len(row) <= count:
            raise MeshError("a face has fewer corners than it says")
        builder.face([whole(part) for part in row[1:1 + count]])


def _row(lines: object) -> list[bytes]:
    row: list[bytes] | None = next(lines, None)  # type: ignore[call-overload]
    if row is None:
        raise MeshError("fewer lines than the header says")
    return row
