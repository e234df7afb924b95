"""Solids put together from boxes of an uneven grid: plates with holes, stairs, whatever has edges along the axes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from tasks.shapes import Shape

_SIDES = (
    ((-1, 0, 0), ((0, 0, 0), (0, 0, 1), (0, 1, 1), (0, 1, 0))),
    ((1, 0, 0), ((1, 0, 0), (1, 1, 0), (1, 1, 1), (1, 0, 1))),
    ((0, -1, 0), ((0, 0, 0), (1, 0, 0), (1, 0, 1), (0, 0, 1))),
    ((0, 1, 0), ((0, 1, 0), (0, 1, 1), (1, 1, 1), (1, 1, 0))),
    ((0, 0, -1), ((0, 0, 0), (0, 1, 0), (1, 1, 0), (1, 0, 0))),
    ((0, 0, 1), ((0, 0, 1), (1, 0, 1), (1, 1, 1), (0, 1, 1))))
"""Where the neighbour lies, and the corners of the side towards it, counterclockwise seen from there."""


def cells(xs: Sequence[float], ys: Sequence[float], zs: Sequence[float],
          filled: Callable[[int, int, int], bool]) -> Shape:
    """The surface of the filled cells. Cells that touch along an edge alone would make it no manifold."""
    sizes = (len(xs) - 1, len(ys) - 1, len(zs) - 1)

    def full(cell: Sequence[int]) -> bool:
        return all(0 <= at < size for at, size in zip(cell, sizes, strict=True)) and filled(*cell)

    found: dict[tuple[int, int, int], int] = {}
    faces = []
    for cell in itertools.product(*(range(size) for size in sizes)):
        for step, corners in _SIDES:
            if full(cell) and not full([at + by for at, by in zip(cell, step, strict=True)]):
                spots = [(cell[0] + x, cell[1] + y, cell[2] + z) for x, y, z in corners]
                faces.append([found.setdefault(spot, len(found)) for spot in spots])
    return Shape([(xs[x], ys[y], zs[z]) for x, y, z in found], faces)


def ply(shape: Shape) -> str:
    rows = ["ply", "format ascii 1.0", f"element vertex {len(shape.corners)}", "property float x", "property float y",
            "property float z", f"element face {len(shape.faces)}", "property list uchar int vertex_indices",
            "end_header"]
    rows += [f"{x:g} {y:g} {z:g}" for x, y, z in shape.corners]
    rows += [" ".join(str(number) for number in [len(face), *face]) for face in shape.faces]
    return "\n".join(rows) + "\n"
