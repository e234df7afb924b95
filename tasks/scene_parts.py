"""Scene tasks with more to them: a plate with holes, stairs that are compared with a reference, a bracket as an
OpenSCAD program (where OpenSCAD is installed)."""

from __future__ import annotations

import shutil

from tasks.scene_cells import cells, ply
from tasks.scene_task import scene_task, written
from tasks.scripts import done, write_file
from tasks.shapes import Shape, flipped, obj, opened
from tasks.task import Task


def part_tasks() -> list[Task]:
    return [_holes(), _stairs(), *([_bracket()] if shutil.which("openscad") else [])]


def _drilled(holes: int) -> Shape:
    places = [(1, 1), (3, 1), (1, 3), (3, 3)][:holes]
    return cells([0, 8, 16, 64, 72, 80], [0, 8, 16, 34, 42, 50], [0, 6], lambda x, y, _: (x, y) not in places)


def _holes() -> Task:
    return scene_task(
        "holes", "holes.ply",
        "Write holes.ply (PLY, format ascii 1.0): a plate of 80 in x, 50 in y and 6 in z with four square holes of 8 "
        "by 8 through it in z, each 8 away from the two nearest edges of the plate.",
        {"extents": [80, 50, 6], "volume": 22_464, "area": 9816, "holes": 4,
         "distances": [{"start": [-1, y, 3], "along": [1, 0, 0], "at": [1, 9, 17, 65, 73, 81]} for y in (12, 38.5)]},
        written("holes.ply", ply(_drilled(4))), written("holes.ply", ply(opened(_drilled(4)))),
        written("holes.ply", ply(_drilled(3))), 0.6)


def _staircase(wall: bool) -> Shape:
    return cells([0, 15, 30, 45, 60], [0, 5, 40], [0, 10, 20, 30, 40, 60],
                 lambda x, y, z: z <= x or (wall and y == 0))


def _stairs() -> Task:
    return scene_task(
        "stairs", "stairs.obj",
        "Write stairs.obj: four steps that rise with x, each 15 deep in x and 10 higher than the one before (the first "
        "10, the last 40 high in z), solid down to z = 0 and 40 wide in y. Along the side y = 0 stands a wall over "
        "all four steps: 60 long in x, 5 thick in y, 60 high in z, one body with the steps. The model is compared "
        "with one of ours.",
        {"comparison": {"reference": {"format": "obj", "text": obj(_staircase(wall=True))}}},
        written("stairs.obj", obj(_staircase(wall=True))), written("stairs.obj", obj(flipped(_staircase(wall=True)))),
        written("stairs.obj", obj(_staircase(wall=False))), 0.7)


_BRACKET = """// An angle bracket: a foot, an upright, one hole in each.
foot = [40, 30, 4];
upright = [4, 30, 35];
hole = 6;
$fn = 96;

module drilled(at, turn) {
    translate(at) rotate(turn) cylinder(d = hole, h = 20, center = true);
}

difference() {
    union() {
        cube(foot);
        cube(upright);
    }
    drilled([25, 15, 2], [0, 0, 0]);
    UPRIGHT
}
"""


def _program(upright: str) -> list[str]:
    return [write_file("bracket.scad", _BRACKET.replace("UPRIGHT", upright)), done("written")]


def _bracket() -> Task:
    """The wrong one misspells a module: OpenSCAD itself only warns, and exits 0."""
    return scene_task(
        "bracket", "bracket.stl",
        "Write the OpenSCAD program bracket.scad of an angle bracket: a foot of 40 in x, 30 in y and 4 in z; an "
        "upright of 4 in x, 30 in y and 35 in z on its side x = 0, one body with it; a round hole of diameter 6 "
        "through the foot in z at x 25, y 15; and one of diameter 6 through the upright in x at y 15, z 22 (with at "
        "least 48 sides each). Our OpenSCAD makes bracket.stl from it; warnings are errors.",
        {"extents": [40, 30, 35], "volume": 8293.8, "holes": 2, "tolerance": 2e-3,
         "toolchain": {"name": "openscad", "program": "bracket.scad", "deadline_s": 30.0, "hardwarnings": True},
         "distances": [{"start": [25, 15, -1], "along": [0, 0, 1], "at": []},
                       {"start": [-1, 15, 22], "along": [1, 0, 0], "at": []},
                       {"start": [25.01, -1, 2], "along": [0, 1, 0], "at": [1, 13, 19, 31]},
                       {"start": [2, -1, 22.01], "along": [0, 1, 0], "at": [1, 13, 19, 31]}],
         "probes": {"inside": [[2, 15, 30], [35, 15, 2]], "outside": [[20, 15, 20], [10, 15, 5]]}},
        _program("drilled([2, 15, 22], [0, 90, 0]);"), _program("driled([2, 15, 22], [0, 90, 0]);"), _program(""), 0.7)
