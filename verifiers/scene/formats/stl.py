"""STL, ASCII and binary. Stored normals and attributes say nothing that the corners do not."""

from __future__ import annotations

import struct

import numpy as np

from verifiers.scene.formats.text import rows
from verifiers.scene.mesh import Builder, MeshError

_HEADER = 84
_TEXT = 512
"""A text has no zero byte; a binary file has some among its first numbers."""
_RECORD = np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("attribute", "<u2")])
_SURPLUS = {True: 1, False: _RECORD.itemsize}


def read(data: bytes, builder: Builder) -> None:
    """Binary if its length is what its triangle count asks for, but for a few bytes behind: some binary files start
    with `solid`, too."""
    count = struct.unpack_from("<I", data, _HEADER - 4)[0] if len(data) >= _HEADER else 0
    text = data.lstrip()[:5].lower() == b"solid" and b"\0" not in data[:_TEXT]
    if len(data) >= _HEADER and 0 <= len(data) - _HEADER - _RECORD.itemsize * count < _SURPLUS[text]:
        _read_binary(data, count, builder)
    elif text:
        _read_ascii(data, builder)
    elif len(data) < _HEADER:
        raise MeshError("neither an ASCII nor a binary STL file")
    else:
        held = (len(data) - _HEADER) // _RECORD.itemsize
        raise MeshError(f"a binary STL file that says {count} triangles and has room for {held}")


def _read_binary(data: bytes, count: int, builder: Builder) -> None:
    with np.errstate(invalid="ignore"):
        corners = np.frombuffer(data, _RECORD, count, _HEADER)["corners"].astype(np.float64).reshape(-1, 3)
    builder.take(corners, np.arange(3 * count, dtype=np.int64).reshape(-1, 3))


def _read_ascii(data: bytes, builder: Builder) -> None:
    corners: list[int] = []
    ended = True
    for word, *rest in rows(data):
        word = word.lower()
        if word in (b"solid", b"facet", b"vertex"):
            ended = False
        elif word == b"endsolid" or (word == b"end" and rest[:1] == [b"solid"]):
            ended = True
        if word == b"vertex":
            corners.append(builder.point(rest))
        elif word == b"endloop":
            if len(corners) != 3:
                raise MeshError("a facet has not three corners")
            builder.face(corners)
            corners = []
    if corners or not ended:
        raise MeshError("the file ends before its `endsolid`")
