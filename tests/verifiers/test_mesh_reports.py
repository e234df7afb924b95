"""Mesh files that public reports found misread by other loaders, each with its report; and polygons with reflex
corners, which a fan of triangles covers wrongly."""

from __future__ import annotations

import io
import random
import struct
import time
import zipfile

import pytest

from schemas.errors import VerifierError
from tasks.scene_cells import ply
from tasks.shapes import ascii_stl, box, extrude, obj, off
from tasks.task import Task
from tests.verifiers.scene_files import RELS, binary_ply, binary_stl, model, moved, package
from verifiers.scene.formats import parse_mesh
from verifiers.scene.measures import Measures, measure
from verifiers.scene.mesh import MeshError
from verifiers.scene.polygons import cut
from verifiers.scene.spec import hidden_of

ANGLE = [(0.0, 0.0), (3.0, 0.0), (3.0, 1.0), (1.0, 1.0), (1.0, 5.0), (0.0, 5.0)]
CHANNEL = [(0.0, 0.0), (5.0, 0.0), (5.0, 4.0), (4.0, 4.0), (4.0, 1.0), (1.0, 1.0), (1.0, 4.0), (0.0, 4.0)]
BOX = box(2, 4, 6)
ASCII, BINARY, OFF = ascii_stl(BOX), binary_stl(BOX), off(BOX)
COUNTS, *ROWS = OFF.splitlines()[1:]
CORNERS, FACES = ROWS[:8], ROWS[8:]


def read(name: str, data: bytes | str) -> Measures:
    return measure(parse_mesh(data.encode() if isinstance(data, str) else data, name))


def coloured(word: str, corner: str, face: str = "") -> str:
    return "\n".join([word, COUNTS, *(row + corner for row in CORNERS), *(row + face for row in FACES)]) + "\n"


def continued() -> str:
    """As one exporter breaks its lines, and a path with a backslash in a comment (assimp#3532)."""
    rows = obj(BOX).splitlines()
    rows[0] = rows[0].replace(" 0", " \\\n 0", 1)
    rows[-1] = rows[-1].replace(" ", " \\\r\n", 1)
    return "# head\\\n" + "\n".join(rows) + "\n"


def relative() -> str:
    """Each face counts back from where it stands, between the vertices (trimesh#2364, #1448)."""
    rows = []
    for face in BOX.faces:
        rows += [f"v {x:g} {y:g} {z:g}" for x, y, z in (BOX.corners[corner] for corner in face)]
        rows.append("usemtl red\nf -4/-1/-1 -3//-2 -2/1 -1")
    return "vt 0 0\nvn 0 0 1\nvn 0 1 0\n" + "\n".join(rows) + "\nl 1 2 3\np 1\n"


def with_types(count: str, index: str) -> bytes:
    codes = {"uint8": "B", "ushort": "H", "uint": "I", "int32": "i", "int": "i"}
    head = (f"ply\nformat binary_big_endian 1.0\nelement vertex 8\nproperty float64 x\nproperty float64 y\nproperty "
            f"float64 z\nelement face 6\nproperty list {count} {index} vertex_index\nend_header\n")
    return head.encode() + b"".join(struct.pack(">3d", *corner) for corner in BOX.corners) + b"".join(
        struct.pack(f">{codes[count]}4{codes[index]}", 4, *face) for face in BOX.faces)


def textured() -> str:
    """With a list of decimals behind each face's corners."""
    head, body = ply(BOX).split("end_header\n")
    rows = body.splitlines()
    faces = [f"{row} 8 0.25 0.5 1 0 0.125 0 1 1" for row in rows[8:]]
    return "\n".join([f"{head}property list uchar float texcoord", "end_header", *rows[:8], *faces]) + "\n"


@pytest.mark.parametrize(("report", "name", "data"), [
    ("sreiter/stl_reader#3", "a.stl", b"solid cube" + BINARY[10:]),
    ("ChubV/php-stl#52", "a.stl", b"SOLID " + BINARY[6:]),
    ("mikedh/trimesh#1720", "a.stl", BINARY + b"\r\n"), ("wolph/numpy-stl#156", "a.stl", f" {ASCII}"),
    ("wolph/numpy-stl#206", "a.stl", ASCII.replace("endsolid", "end solid")),
    ("cnr-isti-vclab/meshlab#734", "a.stl", ASCII.replace("solid part", f"solid {'x/' * 300}")),
    ("mikedh/trimesh#2114", "a.stl", ASCII.upper()), ("a comment at the end", "a.stl", ASCII + "\n; made by hand\n"),
    ("a mark of byte order", "a.stl", "\ufeff" + ASCII), ("old line ends", "a.stl", ASCII.replace("\n", "\r")),
    ("normals that are none", "a.stl", ASCII.replace("normal 0 0", "normal nan nan")),
    ("mikedh/trimesh#753", "a.off", "OFF" + OFF[4:]), ("mikedh/trimesh#542", "a.off", OFF.replace(
        "OFF\n", "# of\nOFF\n# comments\n\n")), ("openscad/openscad#6903", "a.off", OFF.replace("OFF\n", "OFF ")),
    ("cnr-isti-vclab/meshlab#292", "a.off", coloured("COFF", " 255 0 0 255", " 0.5 0.5 0.5")),
    ("alextsui05/blender-off-addon#10", "a.off", OFF.replace("OFF\n", "OFF\n\n")),
    ("normals", "a.off", coloured("NOFF", " 0 0 1")), ("texture", "a.off", coloured("STOFF", " 0 1")),
    ("mikedh/trimesh#2364", "a.obj", relative()), ("mikedh/trimesh#1103", "a.obj", continued()),
    ("mikedh/trimesh#1046", "a.obj", obj(BOX).replace("f 1 4 3 2", "f 1/1 4/2 3/3 2/4")),
    ("Comfy-Org/ComfyUI#15919", "a.obj", obj(BOX).replace("f 1 4", "f 1\\\n4")),
    ("mikedh/trimesh#138", "a.ply", with_types("uint8", "int32")), ("nmwsharp/happly#4", "a.ply", with_types(
        "uint", "uint")), ("cnr-isti-vclab/meshlab#290", "a.ply", with_types("ushort", "uint")),
    ("mikedh/trimesh#37", "a.ply", ply(BOX).replace("vertex_indices", "vertex_index")),
    ("places in a texture", "a.ply", textured()), ("mikedh/trimesh#249", "a.ply", binary_ply(BOX, ">")),
    ("mikedh/trimesh#1911", "a.ply", binary_ply(BOX, "<") + b"\0")])
def test_reported_files_are_the_box_that_they_say(report: str, name: str, data: bytes | str) -> None:
    found = read(name, data)
    assert (found.closed, found.consistent, found.bodies) == (True, True, 1)
    assert (found.volume, found.area, found.extents) == (48.0, 88.0, (2.0, 4.0, 6.0))


@pytest.mark.parametrize(("report", "name", "data", "why"), [
    ("mikedh/trimesh#95", "a.stl", "solid Empty\nendsolid Empty", "no faces"),
    ("mikedh/trimesh#236", "a.stl", BINARY[:-200], "says 12 triangles and has room for 8"),
    ("hidden triangles behind the count", "a.stl", BINARY + BINARY[84:], "says 12 triangles and has room for 24"),
    ("a count that is none", "a.stl", b"solid x" + BINARY[7:80] + struct.pack("<I", 11) + BINARY[84:], "room for 12"),
    ("comma decimals", "a.stl", ASCII.replace("vertex 2", "vertex 2,0"), "not three numbers"),
    ("four dimensions", "a.off", OFF.replace("OFF", "4OFF"), "another dimension"),
    ("binary", "a.off", OFF.replace("OFF", "OFF BINARY"), "binary"),
    ("no word", "a.off", OFF[4:], "starts with"),
    ("mikedh/trimesh#1448", "a.obj", obj(BOX).replace("f 1 ", "f -9 "), "names vertex -9 of 8")])
def test_reported_files_that_are_broken_are_refused(report: str, name: str, data: bytes | str, why: str) -> None:
    with pytest.raises(MeshError, match=why):
        read(name, data)


def test_several_solids_of_one_text_are_several_bodies() -> None:
    """mikedh/trimesh#1053, assimp/assimp#104: only the first was read."""
    found = read("a.stl", ASCII + ascii_stl(moved(BOX, 9)))
    assert (found.bodies, found.volume) == (2, 96.0)


@pytest.mark.parametrize("profile", [ANGLE, CHANNEL])
def test_polygons_with_reflex_corners_have_their_own_surface(profile: list[tuple[float, float]]) -> None:
    """mikedh/trimesh#2519, javagl/Obj#8, clover-moe/mm3d#143: a fan counts surface that is not there."""
    area, around = (7.0, 16.0) if profile is ANGLE else (11.0, 24.0)
    for start in range(len(profile)):
        turned = profile[start:] + profile[:start]
        for name, write in (("a.obj", obj), ("a.off", off), ("a.ply", ply)):
            found = read(name, write(extrude(turned, 2, along="z")))
            assert (found.closed, found.consistent, found.volume) == (True, True, 2 * area)
            assert found.area == pytest.approx(2 * area + 2 * around), (name, start)


def test_polygons_are_cut_in_every_plane_and_sense() -> None:
    for axis in range(3):
        for sense in (1, -1):
            flat = [*CHANNEL][::sense]
            corners = [[0.0, x, y][-axis:] + [0.0, x, y][:-axis] for x, y in flat]
            found = cut(corners)
            assert len(found) == 6 and sorted({at for triangle in found for at in triangle}) == list(range(8))
            assert all(_turn([flat[at] for at in triangle]) * sense >= 0 for triangle in found)


def _turn(corners: list[tuple[float, float]]) -> float:
    (a, b), (c, d), (e, f) = corners
    return (c - a) * (f - b) - (d - b) * (e - a)


def test_hostile_polygons_end_soon() -> None:
    dice, began = random.Random(1), time.process_time()
    for corners in ([(dice.random(), dice.random(), 0.0) for _ in range(3000)], [(0.0, 0.0, 0.0)] * 500,
                    [(float("nan"), 0.0, 0.0), *[(1.0, 2.0, 3.0)] * 9], [(1e300, 0.0, 0.0), *[(0.0, 1.0, -1e300)] * 9],
                    [(at % 2, at, 0.0) for at in range(1000)]):
        assert len(cut(corners)) == len(corners) - 2
    assert time.process_time() - began < 20
    tangle = "".join(f"v {dice.random()} {dice.random()} 0\n" for _ in range(20_000))
    with pytest.raises(MeshError, match="a reflex corner and 20000 corners"):
        read("a.obj", f"{tangle}f {' '.join(map(str, range(1, 20_001)))}\n")


def split(unit: str = "millimeter", inner: str = "millimeter", path: str = "/3D/Objects/object_1.model") -> bytes:
    """Geometry in a part of its own, as slicers write it."""
    uses = (f'<object id="8"><components><component p:path="{path}" objectid="1" '
            'transform="1 0 0 0 1 0 0 0 1 5 0 0"/><component objectid="1"/></components></object>')
    main = model(BOX, unit, '<item objectid="8"/>', uses).replace("<model ", '<model xmlns:p="urn:production" ')
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("_rels/.rels", RELS.format("/3D/Model.model"))
        archive.writestr("3D/model.model", main)
        archive.writestr("3D/Objects/object_1.model", model(box(1, 1, 1), inner))
    return out.getvalue()


def test_parts_of_a_package_are_put_together() -> None:
    """assimp/assimp#5811, mrdoob/three.js#30174: nothing was loaded, or the wrong object of the same number."""
    found = read("a.3mf", split())
    assert (found.bodies, found.volume, found.extents) == (2, 49.0, (6.0, 4.0, 6.0))
    for wrong, why in ((split(inner="inch"), "in several"), (split(path="/3D/none.model"), "without 3D/none.model"),
                       (split(path="/../x.model"), "out of the package")):
        with pytest.raises(MeshError, match=why):
            read("a.3mf", wrong)


def test_units_count_for_places_too() -> None:
    """prusa3d/PrusaSlicer#15545, #15031: translations stayed in the file's unit."""
    pair = ('<object id="2"><components><component objectid="1"/><component objectid="1" '
            'transform="1 0 0 0 1 0 0 0 1 2 0 0"/></components></object>')
    build = '<item objectid="2" transform="1 0 0 0 1 0 0 0 1 1 0 0"/>'
    found = read("a.3mf", package(model(box(1, 1, 1), "inch", build, pair)))
    assert found.extents == pytest.approx((76.2, 25.4, 25.4)) and found.corner[0] == pytest.approx(25.4)
    foot = read("a.3mf", package(model(box(1, 1, 1), "foot")))
    assert foot.extents == pytest.approx((304.8, 304.8, 304.8)), "mikedh/trimesh#1039"
    mirror = read("a.3mf", package(model(BOX, build='<item objectid="1" transform="-1 0 0 0 1 0 0 0 1 0 0 0"/>')))
    assert (mirror.volume, mirror.consistent) == (48.0, True), "prusa3d/PrusaSlicer#6406"
    surface = read("a.3mf", package(model(BOX).replace('type="model"', 'type="surface"')))
    assert surface.volume == 48.0, "prusa3d/PrusaSlicer#11999"


@pytest.mark.parametrize("name", ["part.glb", "part.gltf", "part.step", "part.stp", "part.brep", "part.iges", "part"])
def test_a_task_that_asks_for_a_format_that_is_not_judged_is_the_tasks_fault(name: str) -> None:
    task = Task(task_id="t", kind="scene", set="s", prompt="p", hidden={"mesh": name, "volume": 1.0})
    with pytest.raises(VerifierError, match="are not judged; a task asks for one of 3mf, obj, off, ply, stl"):
        hidden_of(task)
