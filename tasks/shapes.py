"""Meshes that scripts of scene tasks write: polygons over shared corners, counterclockwise seen from outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

Point = tuple[float, float, float]


class Shape(NamedTuple):
    """`faces` name corners from 0; each is a polygon that a fan from its first corner fills."""

    corners: list[Point]
    faces: list[list[int]]


def box(width: float, depth: float, height: float) -> Shape:
    return extrude([(0, 0), (width, 0), (width, depth), (0, depth)], height, along="z")


def extrude(profile: Sequence[tuple[float, float]], length: float, along: str) -> Shape:
    """A counterclockwise profile drawn out. A profile with one reflex corner starts there, so that a fan fills it."""
    count = len(profile)
    if along == "z":
        low: list[Point] = [(x, y, 0) for x, y in profile]
        high: list[Point] = [(x, y, length) for x, y in profile]
    else:
        low, high = [(x, length, z) for x, z in profile], [(x, 0, z) for x, z in profile]
    bottom = [0, *range(count - 1, 0, -1)]
    sides = [[at, (at + 1) % count, count + (at + 1) % count, count + at] for at in range(count)]
    return Shape(low + high, [bottom, list(range(count, 2 * count)), *sides])


def pyramid(width: float, depth: float, height: float) -> Shape:
    corners: list[Point] = [(0, 0, 0), (width, 0, 0), (width, depth, 0), (0, depth, 0), (width / 2, depth / 2, height)]
    return Shape(corners, [[0, 3, 2, 1], [0, 1, 4], [1, 2, 4], [2, 3, 4], [3, 0, 4]])


def flipped(shape: Shape) -> Shape:
    """Inside out."""
    return Shape(shape.corners, [face[::-1] for face in shape.faces])


def opened(shape: Shape) -> Shape:
    """Without its last face."""
    return Shape(shape.corners, shape.faces[:-1])


def _triangles(shape: Shape) -> list[tuple[int, int, int]]:
    return [(face[0], face[at], face[at + 1]) for face in shape.faces for at in range(1, len(face) - 1)]


def obj(shape: Shape) -> str:
    rows = [f"v {x:g} {y:g} {z:g}" for x, y, z in shape.corners]
    rows += ["f " + " ".join(str(corner + 1) for corner in face) for face in shape.faces]
    return "\n".join(rows) + "\n"


def off(shape: Shape) -> str:
    rows = ["OFF", f"{len(shape.corners)} {len(shape.faces)} 0"]
    rows += [f"{x:g} {y:g} {z:g}" for x, y, z in shape.corners]
    rows += [" ".join(str(number) for number in [len(face), *face]) for face in shape.faces]
    return "\n".join(rows) + "\n"


def ascii_stl(shape: Shape) -> str:
    rows = ["solid part"]
    for triangle in _triangles(shape):
        rows += ["facet normal 0 0 0", " outer loop"]
        rows += [f"  vertex {x:g} {y:g} {z:g}" for x, y, z in (shape.corners[corner] for corner in triangle)]
        rows += [" endloop", "endfacet"]
    return "\n".join([*rows, "endsolid part"]) + "\n"


def tube_program(inner: float, broken: bool = False) -> str:
    """A Python program that writes a square tube of 20 x 20 x 30 as binary STL; a broken one fails after it wrote."""
    return f"""import struct

OUTER, INNER, HEIGHT = 20, {inner:g}, 30
gap = (OUTER - INNER) / 2
outer = [(0, 0), (OUTER, 0), (OUTER, OUTER), (0, OUTER)]
inner = [(gap, gap), (OUTER - gap, gap), (OUTER - gap, OUTER - gap), (gap, OUTER - gap)]
triangles = []


def quad(a, b, c, d):
    triangles.extend([(a, b, c), (a, c, d)])


for at in range(4):
    to = (at + 1) % 4
    (ox, oy), (px, py), (ix, iy), (jx, jy) = outer[at], outer[to], inner[at], inner[to]
    quad((ox, oy, 0), (px, py, 0), (px, py, HEIGHT), (ox, oy, HEIGHT))
    quad((jx, jy, 0), (ix, iy, 0), (ix, iy, HEIGHT), (jx, jy, HEIGHT))
    quad((ox, oy, HEIGHT), (px, py, HEIGHT), (jx, jy, HEIGHT), (ix, iy, HEIGHT))
    quad((ix, iy, 0), (jx, jy, 0), (px, py, 0), (ox, oy, 0))

with open("tube.stl", "wb") as file:
    file.write(bytes(80) + struct.pack("<I", len(triangles)))
    for corners in triangles:
        numbers = [0.0, 0.0, 0.0] + [value for corner in corners for value in corner]
        file.write(struct.pack("<12fH", *numbers, 0))
{'raise SystemExit(3)' if broken else ''}
"""
