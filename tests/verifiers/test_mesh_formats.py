"""Every format of mesh gives the same model; a file that is not what it says is refused in bounded memory, with a
reason that a person understands."""

from __future__ import annotations

import io
import random
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest

from tasks.scene_cells import ply
from tasks.shapes import Shape, ascii_stl, box, extrude, obj, off
from tests.verifiers.scene_files import binary_ply, binary_stl, joined, model, moved, package
from verifiers.scene.formats import parse_mesh
from verifiers.scene.measures import measure
from verifiers.scene.mesh import MeshError

ANGLE = extrude([(1, 1), (1, 5), (0, 5), (0, 0), (3, 0), (3, 1)], 2, along="z")
TURNED = '<item objectid="1" transform="0 1 0 -1 0 0 0 0 1 40 50 60"/>'
PLY = "ply\nformat ascii 1.0\nelement vertex 3\nproperty float x\nproperty float y\nproperty float z\n"
FACE = "element face 1\nproperty list uchar int vertex_indices\nend_header\n"


@pytest.mark.parametrize(("name", "data"), [
    ("a.ply", ply(ANGLE).encode()), ("a.ply", binary_ply(ANGLE, "<")), ("a.ply", binary_ply(ANGLE, ">")),
    ("a.ply", binary_ply(ANGLE, "<", split=False)), ("a.PLY", binary_ply(ANGLE, ">", split=False)),
    ("a.stl", binary_stl(ANGLE)), ("a.stl", ascii_stl(ANGLE).upper().encode()), ("a.3mf", package(model(ANGLE))),
    ("a.3mf", package(model(ANGLE), "3D/model.model")),
    ("a.obj", obj(ANGLE).replace("\n", "\r\n").encode()),
    ("a.obj", b"# caf\xe9\nmtllib /etc/passwd\n" + obj(ANGLE).encode())])
def test_every_format_gives_the_same_measures(name: str, data: bytes) -> None:
    measures = measure(parse_mesh(data, name))
    assert (measures.volume, measures.area, measures.extents) == (14.0, 46.0, (3.0, 5.0, 2.0))
    assert (measures.triangles, measures.closed, measures.consistent, measures.bodies) == (20, True, True, 1)


def test_a_3mf_places_its_items_and_says_its_unit() -> None:
    inch = measure(parse_mesh(package(model(ANGLE, unit="inch")), "a.3mf"))
    assert inch.extents == pytest.approx((3 * 25.4, 5 * 25.4, 2 * 25.4))
    turned = measure(parse_mesh(package(model(ANGLE, build=TURNED)), "a.3mf"))
    assert (turned.extents, turned.volume, turned.corner) == ((5.0, 3.0, 2.0), 14.0, (35.0, 50.0, 60.0))
    mirrored = measure(parse_mesh(package(model(
        ANGLE, build='<item objectid="1" transform="-1 0 0 0 1 0 0 0 1 0 0 0"/>')), "a.3mf"))
    assert mirrored.volume == 14.0
    pair = ('<object id="2"><components><component objectid="1"/><component objectid="1" '
            'transform="1 0 0 0 1 0 0 0 1 9 0 0"/></components></object>')
    both = measure(parse_mesh(package(model(ANGLE, build='<item objectid="2"/>', more=pair)), "a.3mf"))
    assert (both.bodies, both.volume) == (2, 28.0)


def deep() -> bytes:
    """Each object is the one before, ten times: a billion copies from a page of text."""
    tens = [f'<component objectid="{at}"/>' * 10 for at in range(1, 10)]
    more = "".join(f'<object id="{at + 2}"><components>{ten}</components></object>' for at, ten in enumerate(tens))
    return package(model(ANGLE, build='<item objectid="10"/>', more=more))


def two_entries(first: str, second: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("_rels/.rels", first)
        archive.writestr("3D/model.model", second)
    return out.getvalue()


def many_entries() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for at in range(2001):
            archive.writestr(f"{at}", b"")
    return out.getvalue()


def with_nan() -> bytes:
    data = bytearray(binary_stl(ANGLE))
    data[84 + 12:84 + 16] = struct.pack("<I", 0x7FA00000)  # a signalling NaN
    return bytes(data)


ENTITY = model(ANGLE).replace("?><model", '?><!DOCTYPE m [<!ENTITY x SYSTEM "file:///etc/passwd">]><model').replace(
    'x="1"', 'x="&x;"', 1)
LAUGHS = ENTITY.replace('SYSTEM "file:///etc/passwd"', '"1"')


@pytest.mark.parametrize(("name", "data", "why"), [
    ("a.stl", b"", "empty"),
    ("a.stl", binary_stl(ANGLE, 4_000_000_000), "says 4000000000 triangles and has room for 20"),
    ("a.stl", binary_stl(ANGLE)[:-7], "room for 19"), ("a.stl", with_nan(), "not finite"),
    ("a.stl", bytes(84), "no faces"), ("a.stl", bytes(50), "neither"),
    ("a.stl", ascii_stl(ANGLE)[:-70].encode(), "before its `endsolid`"),
    ("a.stl", ascii_stl(ANGLE).replace("vertex 0", "vertex 1e999").encode(), "not finite"),
    ("a.obj", obj(ANGLE).replace("f 1", "f 99").encode(), "names vertex 99 of 12"),
    ("a.obj", b"v 0 0 0\nf 1 2 3", "names vertex 2 of 1"), ("a.obj", b"f 1 2 3\nv 0 0 0\n" * 3, "names vertex"),
    ("a.obj", b"v 0 0 0\n" * 3 + b"f 1 2 " + b"9" * 5000, "not a whole number"),
    ("a.off", b"OFF\n3 4000000000 0\n0 0 0\n1 0 0\n0 1 0\n3 0 1 2\n", "says 4000000000"),
    ("a.off", b"OFF\n3 -1 0\n", "negative"), ("a.off", b"OFF\n3 1 0\n0 0 0\n1 0 0\n0 1 0\n3 0 1 3\n", "vertex 3 of 3"),
    ("a.ply", b"ply\nformat ascii 1.0\nend_header", "ends with its header"), ("a.ply", b"plain", "starts with `ply`"),
    ("a.ply", (PLY.replace("vertex 3", "vertex 4000000000") + FACE).encode(), "out of range"),
    ("a.ply", (PLY.replace("vertex 3", "vertex -3") + FACE).encode(), "out of range"),
    ("a.ply", (PLY.replace("vertex 3", "vertex 2000000000") + FACE).encode(), "says 2000000000"),
    ("a.ply", (PLY + FACE + "0 0 0\n1 0 0\n").encode(), "fewer lines"),
    ("a.ply", (PLY + FACE + "0 0 0\n1 0 0\n0 1 0\n3 0 1 7\n").encode(), "vertex 7 of 3"),
    ("a.ply", (PLY + FACE + "0 0 0\n1 0 0\n0 1 0\n900000 0 1 2\n").encode(), "fewer corners"),
    ("a.ply", (PLY + FACE + "0 0 0\n1 0 nan\n0 1 0\n3 0 1 2\n").encode(), "not finite"),
    ("a.ply", (PLY.replace("float z", "list uchar float z") + FACE).encode(), "no lists"),
    ("a.ply", (PLY.replace("float z", "pickle z") + FACE).encode(), "not known"),
    ("a.ply", b"ply\nformat binary_little_endian 1.0\nelement x 9\nend_header\n", "without properties"),
    ("a.ply", b"ply\nformat ascii 1.0\nelement x 900000\nproperty int a\nend_header\n", "too many rows"),
    ("a.obj", b"v 0 0 0\nv 1e-300 0 0\nv 0 1e-300 0\nf 1 2 3\n", "smaller than"),
    ("a.obj", b"\n" * 2_000_000, "more lines"), ("a.3mf", many_entries(), "more than 2000 entries"),
    ("a.3mf", package("<a>" + "<b/>" * 1_000_000 + "</a>"), "more XML elements"),
    ("a.ply", binary_ply(ANGLE, "<")[:-9], "ends within"), ("a.ply", binary_ply(ANGLE, ">")[:300], "ends before"),
    ("a.ply", binary_ply(ANGLE, "<").replace(b"face 20", b"face 90000"), "ends before"),
    ("a.3mf", b"PK\x03\x04 but not really", "zip"), ("a.3mf", package(model(ANGLE))[:-90], "zip"),
    ("a.3mf", package(b" " * (70 << 20)), "unpacks to more than"),
    ("a.3mf", package(model(ANGLE), name="x"), "without"),
    ("a.3mf", package(model(ANGLE), target="../../etc/passwd"), "out of the package"),
    ("a.3mf", package(model(ANGLE), target="file:///etc/passwd"), "out of the package"),
    ("a.3mf", package(ENTITY), "entities are not read"), ("a.3mf", package(LAUGHS), "entities are not read"),
    ("a.3mf", two_entries("<Relationships/>", b""), "names no 3D model"),
    ("a.3mf", deep(), "more than 100000 triangles"),
    ("a.3mf", package(model(ANGLE, build='<item objectid="2"/>',
                            more='<object id="2"><components><component objectid="2"/></components></object>')),
                             "deeply"),
    ("a.3mf", package(model(ANGLE, build='<item objectid="7"/>')), "object 7 is not there"),
    ("a.3mf", package(model(ANGLE, build="")), "without a mesh"),
    ("a.3mf", package(model(ANGLE, "furlong")), "furlong"),
    ("a.3mf", package(model(ANGLE).replace('v3="2"', 'v3="99"')), "vertex 99"), ("a.3mf", package("<model"), "XML"),
    ("a.3mf", package(model(ANGLE, build='<item objectid="1" transform="1e300 0 0 0 1e300 0 0 0 1e300 0 0 0"/>')),
     "not finite or too large"),
    ("a.glb", b"glTF", "unknown mesh format")])
def test_a_file_that_is_not_what_it_says_is_refused_by_name(name: str, data: bytes, why: str) -> None:
    with pytest.raises(MeshError, match=why):
        parse_mesh(data, name)


def test_more_triangles_than_the_cap_cost_no_memory() -> None:
    """Twelve million triangles; the header or the first lines are enough to say no."""
    claimed = bytes(80) + struct.pack("<I", 12_000_000)
    files = [("a.stl", claimed + bytes(50)), ("a.off", b"OFF\n12000000 12000000 0\n" + b"0 0 0\n" * 100_000),
             ("a.obj", b"v 0 0 0\nv 1 0 0\nv 0 1 0\n" + b"f 1 2 3\n" * 200_000)]
    for name, data in files:
        tracemalloc.start()
        with pytest.raises(MeshError):
            parse_mesh(data, name, max_triangles=10_000)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
        tracemalloc.stop()


def test_corners_in_one_place_are_one_vertex_in_the_order_of_the_file() -> None:
    mesh = parse_mesh(binary_stl(joined(box(1, 1, 1), moved(box(1, 1, 1), 3))), "a.stl")
    assert (len(mesh.points), mesh.repeated, mesh.dropped) == (16, 56, 0)
    assert mesh.triangles[0].tolist() == [0, 1, 2] and mesh.points[mesh.triangles[0]].shape == (3, 3)
    needle = Shape([*box(1, 1, 1).corners, (1e-10, 0, 0)], [*box(1, 1, 1).faces, [0, 8, 1]])
    nearly = parse_mesh(obj(needle).encode(), "a.obj")
    assert (len(nearly.points), nearly.dropped) == (8, 1) and np.isfinite(nearly.points).all()


def test_damaged_bytes_are_a_mesh_or_refused_and_never_anything_else() -> None:
    dice = random.Random(3)
    whole = [("a.ply", ply(ANGLE).encode()), ("a.ply", binary_ply(ANGLE, "<")),
             ("a.ply", binary_ply(ANGLE, ">", split=False)),
             ("a.stl", binary_stl(ANGLE)), ("a.stl", ascii_stl(ANGLE).encode()), ("a.obj", obj(ANGLE).encode()),
             ("a.off", off(ANGLE).encode()), ("a.3mf", package(model(ANGLE)))]
    refused = 0
    for name, data in whole * 60:
        at, kind = dice.randrange(len(data)), dice.randrange(3)
        tail = data[at + 1:] if kind == 0 else data[at + dice.randrange(20):] if kind == 1 else b""
        try:
            assert measure(parse_mesh(data[:at] + bytes([dice.randrange(256)]) + tail, name)).triangles <= 21
        except MeshError:
            refused += 1
    assert 200 < refused < 480
