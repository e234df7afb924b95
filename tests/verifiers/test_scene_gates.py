"""What a model must be, and its defects by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.scene_cells import cells
from tasks.shapes import Shape, box, extrude, flipped, obj, opened
from tests.verifiers.scene_files import joined, moved
from verifiers.scene.constraints import held, unit_slip
from verifiers.scene.formats import parse_mesh
from verifiers.scene.gates import defects, gates
from verifiers.scene.measures import crossings, edges_of, measure
from verifiers.scene.mesh import Mesh
from verifiers.scene.overlap import overlap
from verifiers.scene.spec import Line, SceneHidden


def mesh_of(shape: Shape) -> Mesh:
    return parse_mesh(obj(shape).encode(), "a.obj")


def judged(mesh: Mesh, **hidden: object) -> tuple[set[str], str]:
    """Gates that fail, and the defects as one text."""
    wanted = SceneHidden(mesh="a.obj", **hidden)  # type: ignore[arg-type]
    edges = edges_of(mesh)
    measures = measure(mesh, edges)
    covered = overlap(mesh) if measures.closed else None
    failed = {name for name, value in gates(measures, covered, wanted).items() if not value}
    return failed, "\n".join(defects(mesh, edges, measures, covered, wanted))




CUBE = box(4, 4, 4)


@pytest.mark.parametrize(("shape", "failed", "named"), [
    (CUBE, set(), ""), (flipped(CUBE), {"solid", "bodies", "simple"}, "inverted mesh"),
    (opened(CUBE), {"closed"}, "open mesh: 4 of 17 edges"),
    (joined(CUBE, CUBE), {"closed", "consistent"}, "duplicated body"),
    (joined(CUBE, moved(CUBE, 9)), {"bodies"}, "multi-body: 2 where 1"),
    (joined(CUBE, moved(CUBE, 1e-3)), {"bodies", "simple"}, "duplicated body: 1 closed parts"),
    (joined(CUBE, moved(box(2, 2, 2), 1)), {"bodies", "simple"}, "overlapping geometry"),
    (joined(CUBE, moved(flipped(box(2, 2, 2)), 1)), {"bodies"}, "hidden geometry: 1 closed parts face inward"),
    (joined(CUBE, moved(flipped(box(2, 2, 2)), 9)), {"bodies", "simple"}, "inverted geometry"),
    (Shape(CUBE.corners, [CUBE.faces[0][::-1], *CUBE.faces[1:]]), {"consistent"}, "inconsistent winding"),
    (Shape([*CUBE.corners, (2, 0, 0)], [*CUBE.faces, [0, 8, 1], [1, 8, 0]]), {"closed", "consistent"},
     "zero-area triangles: 2"),
    (Shape(CUBE.corners, [CUBE.faces[0], CUBE.faces[0][::-1]]), {"solid"}, "flat mesh")],
    ids=["sound", "inverted", "open", "twice", "two", "shifted twice", "hidden body", "cavity", "inverted part",
         "one face turned", "zero area", "flat"])
def test_defects_are_named(shape: Shape, failed: set[str], named: str) -> None:
    found, text = judged(mesh_of(shape))
    assert failed <= found and named in text
    assert bool(found) == bool(failed) and (named or not text)


def test_a_shell_that_passes_through_itself_is_seen_though_its_edges_are_right() -> None:
    """A bow tie drawn out: closed, consistent, one body; half of it is inside out."""
    bow = extrude([(0, 0), (4, 4), (4, 0), (0, 5)], 3, along="z")
    failed, text = judged(mesh_of(bow))
    assert "simple" in failed and "inverted geometry" in text
    assert measure(mesh_of(bow)).closed and measure(mesh_of(bow)).consistent


def test_a_double_shell_does_not_double_the_volume() -> None:
    """The same box twice, a hair apart: the volume by the divergence theorem is twice the real one."""
    double = joined(box(2, 2, 2), moved(box(2, 2, 2), 1e-3))
    assert measure(mesh_of(double)).volume == pytest.approx(16)
    failed, text = judged(mesh_of(double), bodies=2)
    assert failed == {"simple"} and "duplicated body" in text


def test_a_cavity_that_is_wanted_passes() -> None:
    hollow = joined(CUBE, moved(flipped(box(2, 2, 2)), 1))
    assert judged(mesh_of(hollow), cavities=1) == (set(), "")
    assert "hidden geometry: 0" in judged(mesh_of(CUBE), cavities=1)[1]


def test_holes_distances_centre_and_symmetry() -> None:
    plate = mesh_of(cells([0, 2, 4, 8], [0, 3, 6, 9], [0, 1], lambda x, y, _: (x, y) != (1, 1)))
    measures = measure(plate)
    assert crossings(plate, (-1, 4, 0.3), (2, 0, 0)) == pytest.approx([1, 3, 5, 9])
    assert crossings(plate, (3, 4, -1), (0, 0, 1)) == []
    wanted = SceneHidden(
        mesh="a", holes=1, symmetry="xy", centroid=((72 * 4 - 6 * 3) / 66, 4.5, 0.5),
        distances=[Line(start=(-1, 4, 0.3), along=(1, 0, 0), at=[9, 5, 3, 1]),
                   Line(start=(3, 4, -1), along=(0, 0, 1), at=[]),
                   Line(start=(-1, 4, 0.3), along=(1, 0, 0), at=[1, 9]),
                   Line(start=(-1, 4, 0.3), along=(1, 0, 0), at=[1, 3, 5])])
    notes: dict[str, object] = {}
    assert held(plate, measures, wanted, notes) == {"holes": 1.0, "centroid": 1.0, "distances": 0.5, "symmetry": 0.5}
    assert notes["holes"] == 1 and notes["symmetry"]["y"] == 1.0  # type: ignore[index]


def test_a_wrong_unit_is_named() -> None:
    assert "too small by a factor of 1000" in unit_slip((0.04, 0.025, 0.01), (40, 25, 10))
    assert "too large by a factor of 25.4" in unit_slip((40 * 25.4, 25 * 25.4, 254), (40, 25, 10))
    assert unit_slip((40, 25, 10), (40, 25, 10)) == unit_slip((400, 25, 10), (40, 25, 10)) == ""


def test_real_broken_open_and_multi_body_meshes_are_named(cases: Callable[[str], Path]) -> None:
    folder = cases("3d/trimesh-models/REFERENCE.json").parent
    said = {}
    for row in json.loads((folder / "REFERENCE.json").read_text())["rows"]:
        if row["file"].rpartition(".")[2].lower() in ("obj", "off", "stl", "3mf"):
            mesh = parse_mesh((folder / row["file"]).read_bytes(), row["file"])
            said[row["file"]] = judged(mesh)
    assert len(said) >= 16
    assert "open mesh" in said["soup.stl"][1] and "closed" in said["soup.stl"][0]
    assert "not manifold" in said["not_convex.obj"][1]
    assert "multi-body: 12" in said["pyramids.3mf"][1] and "multi-body: 2" in said["cube_and_sphere_same_name.3mf"][1]
    sound = {"20mm-xyz-cube.stl", "ballA.off", "ballB.off", "cylinder.stl", "fandisk.obj", "featuretype.STL",
             "round.stl", "octagonal_pocket.stl", "plate_holes.STL", "unit_sphere.STL"}
    assert all(not failed for name, (failed, _) in said.items() if name in sound)
