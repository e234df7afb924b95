"""OBJ: `v` and `f`. Other statements (normals, groups, materials) have no geometry of their own; no file that one
names is opened."""

from __future__ import annotations

from collections.abc import Iterator

from verifiers.scene.formats.text import rows, whole
from verifiers.scene.mesh import Builder, MeshError


def read(data: bytes, builder: Builder) -> None:
    for word, *rest in _joined(data):
        if word == b"v":
            if len(rest) not in (3, 4, 6, 7):
                raise MeshError("a vertex is not three numbers")
            builder.point(rest[:3])
        elif word == b"f":
            builder.face([_corner(part, builder.points) for part in rest])


def _joined(data: bytes) -> Iterator[list[bytes]]:
    """Lines that end with a backslash go on; in a comment it says nothing."""
    begun: list[bytes] = []
    for words in rows(data):
        if words[-1].endswith(b"\\"):
            begun += [*words[:-1], *([words[-1][:-1]] if words[-1] != b"\\" else [])]
            continue
        yield begun + words
        begun = []
    if begun:
        yield begun


def _corner(part: bytes, count: int) -> int:
    """`7`, `7/1`, `7//2`, `7/1/2`; negative counts from the end."""
    index = whole(part.partition(b"/")[0])
    if index == 0 or index > count or -index > count:
        raise MeshError(f"a face names vertex {index} of {count}")
    return index - 1 if index > 0 else count + index
