"""3D models to write as mesh files that meet dimensions, in several formats, some of them made by a submitted program.

Hidden: extents, volume, area, Euler number, holes, points that must lie inside or outside, or a reference. Every shape
has its lowest corner at the origin and faces wound counterclockwise seen from outside.
"""

from __future__ import annotations

from tasks.scene_parts import part_tasks
from tasks.scene_task import scene_task, written
from tasks.scripts import done, run, write_file
from tasks.shapes import ascii_stl, box, extrude, flipped, obj, off, opened, pyramid, tube_program
from tasks.task import Task


def scene_tasks() -> list[Task]:
    return [_box(), _plate(), _prism(), _pyramid(), _angle(), _tube(), *part_tasks()]


def _box() -> Task:
    right = box(40, 25, 10)
    return scene_task(
        "box", "box.obj", "Write box.obj: a box of 40 in x, 25 in y and 10 in z.",
        {"extents": [40, 25, 10], "volume": 10_000, "area": 3300, "euler": 2,
         "probes": {"inside": [[1, 1, 1], [39, 24, 9]], "outside": [[41, 1, 1], [20, 12, 11]]}},
        written("box.obj", obj(right)), written("box.obj", obj(flipped(right))),
        written("box.obj", obj(box(25, 40, 10))), 0.2)


def _plate() -> Task:
    """A plate of 60 x 30 x 4 that is 10 high for x below 15: the profile extruded along y."""
    right = extrude([(15, 4), (15, 10), (0, 10), (0, 0), (60, 0), (60, 4)], 30, along="y")
    return scene_task(
        "plate", "plate.stl",
        "Write plate.stl as ASCII STL: a plate of 60 in x, 30 in y and 4 in z, with a step along its side x = 0 that "
        "is 15 wide in x and 10 high in z.",
        {"extents": [60, 30, 10], "volume": 9900, "area": 4860, "euler": 2,
         "probes": {"inside": [[5, 15, 8], [50, 15, 2]], "outside": [[20, 15, 8], [5, 15, 11]]}},
        written("plate.stl", ascii_stl(right)), written("plate.stl", ascii_stl(opened(right))),
        written("plate.stl", ascii_stl(box(60, 30, 10))), 0.4)


def _prism() -> Task:
    right = extrude([(0, 0), (30, 0), (0, 40)], 12, along="z")
    return scene_task(
        "prism", "prism.off",
        "Write prism.off (OFF): a prism 12 high in z on a right triangle with legs 30 along x and 40 along y.",
        {"extents": [30, 40, 12], "volume": 7200, "area": 2640, "euler": 2,
         "probes": {"inside": [[5, 5, 6], [20, 5, 6]], "outside": [[25, 35, 6], [5, 5, 13]]}},
        written("prism.off", off(right)), written("prism.off", "OFF\n3 1 0\n0 0 0\n30 0 0\n0 40 12\n3 0 1 2\n"),
        written("prism.off", off(box(30, 40, 12))), 0.3)


def _pyramid() -> Task:
    right = pyramid(24, 24, 16)
    return scene_task(
        "pyramid", "pyramid.obj",
        "Write pyramid.obj: a pyramid 16 high in z on a square of 24 in the plane z = 0, its tip above the middle.",
        {"extents": [24, 24, 16], "volume": 3072, "area": 1536, "euler": 2,
         "probes": {"inside": [[12, 12, 14], [1, 1, 0.25]], "outside": [[1, 1, 8], [12, 12, 17]]}},
        written("pyramid.obj", obj(right)), written("pyramid.obj", obj(right) + obj(right)),
        written("pyramid.obj", obj(pyramid(24, 24, 8))), 0.3)


def _angle() -> Task:
    profile = [(10, 10), (10, 50), (0, 50), (0, 0), (35, 0), (35, 10)]
    right = extrude(profile, 20, along="z")
    return scene_task(
        "angle", "angle.stl",
        "Write angle.stl as ASCII STL: an L of thickness 10 in the plane z = 0, one leg 35 long along x, the other 50 "
        "along y (both measured outside), 20 high in z.",
        {"extents": [35, 50, 20], "volume": 15_000, "area": 4900, "euler": 2,
         "probes": {"inside": [[5, 45, 10], [30, 5, 10]], "outside": [[30, 45, 10], [12, 12, 10]]}},
        written("angle.stl", ascii_stl(right)), written("angle.stl", "solid angle\nendsolid angle\n"),
        written("angle.stl", ascii_stl(extrude(profile, 10, along="z"))), 0.4)


def _tube() -> Task:
    """Made by a program that the verifier runs again, so a mesh without its program is worth nothing."""
    program, command = "tube.py", "python3 tube.py"
    made = {name: [write_file(program, tube_program(inner=inner, broken=broken)), run(command), done("written")]
            for name, inner, broken in (("right", 10, False), ("wrong", 10, True), ("partial", 8, False))}
    return scene_task(
        "tube", "tube.stl",
        "Write the Python program tube.py that writes tube.stl as binary STL: a square tube, outside 20 by 20 in x and "
        "y, with a square hole of 10 by 10 in its middle all along its height of 30 in z. The program is run again.",
        {"extents": [20, 20, 30], "volume": 9000, "area": 4200, "euler": 0,
         "toolchain": {"argv": ["python3", "tube.py"], "deadline_s": 10.0},
         "probes": {"inside": [[2, 10, 15], [10, 18, 15]], "outside": [[10, 10, 15], [21, 10, 15]]}},
        made["right"], made["wrong"], made["partial"], 0.6)

