"""Mesh files of untrusted origin, parsed strictly: STL, OBJ, PLY, OFF, 3MF. The ending of the name is the format.

A file that is not what it says, is cut off or claims more than it holds is refused with a reason (MeshError), and
never costs more memory than the cap of triangles allows.
"""

from __future__ import annotations

import importlib

from verifiers.scene.mesh import MAX_TRIANGLES, Builder, Mesh, MeshError

PARSERS = {"3mf": "threemf", "obj": "obj", "off": "off", "ply": "ply", "stl": "stl"}
MODULES = ("verifiers.scene.formats", "verifiers.scene.mesh", "verifiers.scene.polygons",
           "verifiers.scene.formats.text",
           *(f"verifiers.scene.formats.{name}" for name in PARSERS.values()))
_BYTES_A_TRIANGLE = 400
_BYTES_BESIDE = 1 << 20
_LINES_A_TRIANGLE, _LINES_BESIDE = 10, 100_000


def max_bytes(max_triangles: int) -> int:
    """No sensible file with so many triangles is larger: an ASCII STL takes about 270 bytes for each."""
    return _BYTES_BESIDE + _BYTES_A_TRIANGLE * max_triangles


def parse_mesh(data: bytes, name: str, max_triangles: int = MAX_TRIANGLES) -> Mesh:
    """The mesh in a file called `name`."""
    ending = name.rpartition(".")[2].lower()
    if ending not in PARSERS:
        raise MeshError(f"unknown mesh format `.{ending}`; there are {', '.join(sorted(PARSERS))}")
    if len(data) > max_bytes(max_triangles):
        raise MeshError(f"larger than {max_bytes(max_triangles)} bytes")
    data = data.removeprefix(b"\xef\xbb\xbf")
    if not data:
        raise MeshError("the file is empty")
    if ending != "3mf" and data.count(b"\n") > _LINES_BESIDE + _LINES_A_TRIANGLE * max_triangles:
        raise MeshError(f"more lines than {max_triangles} triangles need")
    parser = importlib.import_module(f"verifiers.scene.formats.{PARSERS[ending]}")
    builder = Builder(max_triangles)
    try:
        parser.read(data, builder)
        return builder.mesh()
    except MeshError:
        raise
    except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError) as wrong:
        # Bytes that a parser did not foresee are the file's fault: no way to a verdict that is not given.
        raise MeshError(f"not readable as .{ending} ({type(wrong).__name__}: {wrong})"[:300]) from None
