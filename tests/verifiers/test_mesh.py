"""Meshes are parsed strictly and measured exactly."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tasks.shapes import ascii_stl, box, extrude, flipped, obj, off, opened, pyramid
from verifiers.scene.formats import parse_mesh
from verifiers.scene.measures import measure, winding
from verifiers.scene.mesh import Mesh, MeshError


def binary_stl(text: str) -> bytes:
    """An ASCII STL file as a binary one."""
    numbers = [[float(part) for part in line.split()[1:]] for line in text.splitlines() if "vertex" in line]
    rows = [struct.pack("<12fH", 0, 0, 0, *numbers[at], *numbers[at + 1], *numbers[at + 2], 0)
            for at in range(0, len(numbers), 3)]
    return b"solid but binary".ljust(80, b"\0") + struct.pack("<I", len(rows)) + b"".join(rows)


ANGLE = extrude([(1, 1), (1, 5), (0, 5), (0, 0), (3, 0), (3, 1)], 2, along="z")


@pytest.mark.parametrize(("name", "data"), [
    ("a.obj", obj(ANGLE).encode()), ("a.off", off(ANGLE).encode()), ("a.stl", ascii_stl(ANGLE).encode()),
    ("A.STL", binary_stl(ascii_stl(ANGLE)))])
def test_every_format_gives_the_same_measures(name: str, data: bytes) -> None:
    measures = measure(parse_mesh(data, name))
    assert (measures.volume, measures.area, measures.extents) == (14.0, 46.0, (3.0, 5.0, 2.0))
    assert (measures.triangles, measures.closed, measures.consistent) == (20, True, True)
    assert (measures.bodies, measures.euler) == (1, 2)


def test_defects_are_measured() -> None:
    inside_out = measure(parse_mesh(obj(flipped(ANGLE)).encode(), "a.obj"))
    assert (inside_out.volume, inside_out.closed) == (-14.0, True)
    assert not measure(parse_mesh(ascii_stl(opened(ANGLE)).encode(), "a.stl")).closed
    twice = measure(parse_mesh((obj(ANGLE) + obj(ANGLE)).encode(), "a.obj"))
    assert (twice.triangles == 40 and not twice.closed) or not twice.consistent
    one_turned = obj(box(1, 1, 1)).replace("f 1 4 3 2", "f 2 3 4 1")
    assert not measure(parse_mesh(one_turned.encode(), "a.obj")).consistent


def test_bodies_are_counted() -> None:
    shifted = pyramid(2, 2, 2)
    rows = obj(box(1, 1, 1)) + "".join(f"v {x + 9} {y} {z}\n" for x, y, z in shifted.corners)
    rows += "".join("f " + " ".join(str(corner + 9) for corner in face) + "\n" for face in shifted.faces)
    measures = measure(parse_mesh(rows.encode(), "a.obj"))
    assert (measures.bodies, measures.euler, measures.closed) == (2, 4, True)


def test_winding_tells_inside_from_outside() -> None:
    mesh = parse_mesh(obj(ANGLE).encode(), "a.obj")
    assert winding(mesh, (0.5, 4.5, 1)) == pytest.approx(1) and winding(mesh, (2.5, 0.5, 0.1)) == pytest.approx(1)
    assert winding(mesh, (2.5, 4.5, 1)) == pytest.approx(0) and winding(mesh, (0.5, 4.5, 2.1)) == pytest.approx(0)
    assert winding(parse_mesh(obj(flipped(ANGLE)).encode(), "a.obj"), (0.5, 4.5, 1)) == pytest.approx(-1)


def test_a_far_origin_costs_no_digits() -> None:
    near = parse_mesh(obj(box(1, 1, 1)).encode(), "a.obj")
    far = Mesh(near.points + np.array([1e7, -1e7, 1e7]), near.triangles)
    assert measure(far).volume == 1.0


@pytest.mark.parametrize(("name", "text"), [
    ("a.obj", ""), ("a.obj", "v 0 0 0\n"), ("a.obj", "v 0 0 nan\nv 1 0 0\nv 0 1 0\nf 1 2 3\n"),
    ("a.obj", "v 0 0 inf\nv 1 0 0\nv 0 1 0\nf 1 2 3\n"), ("a.obj", "v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 4\n"),
    ("a.obj", "v 0 0 0\nv 1 0 0\nv 0 1 0\nf 0 1 2\n"), ("a.obj", "v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 -4\n"),
    ("a.obj", "v 0 0\nf 1 1 1\n"), ("a.obj", "v 0 0 0\nv 1 0 0\nf 1 2\n"), ("a.obj", "v 0 0 0\nf 1 1 1\n"),
    ("a.obj", "v 0 0 0\nv 1 0 0\nv 0 1 0\nf a b c\n"), ("a.obj", "v 1e30 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 3\n"),
    ("a.off", "OFF\n"), ("a.off", "OFF\n3 1 0\n0 0 0\n1 0 0\n"), ("a.off", "OFF\n-1 1 0\n"), ("a.off", "COFF\n3 1 0\n"),
    ("a.off", "OFF\n3 1 0\n0 0 0\n1 0 0\n0 1 0\n3 0 1\n"), ("a.off", "OFF\n3 1 0\n0 0 0\n1 0 0\n0 1 0\n3 0 1 7\n"),
    ("a.stl", "solid x\nendsolid x\n"), ("a.stl", "facet"), ("a.stl", "solid x\nvertex 0 0 0\nendloop\n"),
    ("a.stl", "solid x\nvertex 0 0 zero\nendloop\n"), ("a.ply", "ply\n"), ("a", "OFF"), ("a.obj", "v é 0 0\n")])
def test_what_is_no_mesh_is_refused(name: str, text: str) -> None:
    with pytest.raises(MeshError):
        parse_mesh(text.encode(), name)


def test_size_is_capped() -> None:
    soup = "v 0 0 0\nv 1 0 0\nv 0 1 0\n" + "f 1 2 3\n" * 101
    with pytest.raises(MeshError, match="more than 100 triangles"):
        parse_mesh(soup.encode(), "a.obj", max_triangles=100)
    with pytest.raises(MeshError, match="more vertices"):
        parse_mesh(b"v 0 0 0\n" * 301, "a.obj", max_triangles=100)
    with pytest.raises(MeshError, match="larger than"):
        parse_mesh(b" " * (2 << 20), "a.obj", max_triangles=100)


def test_real_meshes_measure_as_their_reference_says(cases: Callable[[str], Path]) -> None:
    """The reference was measured by another program. It leaves vertices of two OBJ files apart that we merge."""
    reference = cases("3d/trimesh-models/REFERENCE.json")
    measured = 0
    for row in json.loads(reference.read_text())["rows"]:
        path = reference.parent / row["file"]
        if path.suffix.lower() not in (".obj", ".off", ".stl", ".3mf") or path.stem in ("soup", "tube", "ico4"):
            continue
        measures = measure(parse_mesh(path.read_bytes(), path.name))
        assert (measures.triangles, measures.closed, measures.euler) == (row["faces"], row["watertight"], row["euler"])
        assert measures.bodies == row["bodies"]
        assert (measures.closed and measures.consistent) == row["is_volume"]
        assert measures.volume == pytest.approx(row["volume"], rel=1e-6)
        assert measures.area == pytest.approx(row["area"], rel=1e-6)
        assert measures.extents == pytest.approx(row["extents"], rel=1e-6)
        measured += 1
    assert measured >= 13
