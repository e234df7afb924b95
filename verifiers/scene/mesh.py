"""Triangle meshes as arrays, built from numbers that an untrusted file gave.

A mesh is refused with a reason (MeshError) for a number that is not finite or too large, a corner that is not there,
and more triangles than the cap, which is checked before memory is spent. Corners at one position are one vertex, since
STL and exporters repeat them: within 1e-8 of the mesh's size. Triangles that have no three different corners are
dropped and counted. Nothing else is repaired.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from verifiers.scene.polygons import TooManyCorners, cut

Point = tuple[float, float, float]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
MAX_TRIANGLES = 100_000
MAX_COORDINATE = 1e9
MIN_SIZE = 1e-9
MERGE = 1e-8


class MeshError(ValueError):
    """Why bytes are not a mesh that we accept."""


class Mesh(NamedTuple):
    points: Floats
    """One row a vertex."""
    triangles: Ints
    """Three vertices a row, counterclockwise seen from outside."""
    repeated: int = 0
    """Vertices of the file that stand where another one stands."""
    dropped: int = 0
    """Triangles of the file without three different corners."""

    def corners(self) -> tuple[Floats, Floats, Floats]:
        """First, second and third corner of every triangle."""
        first, second, third = self.triangles.T
        return self.points[first], self.points[second], self.points[third]


class Builder:
    """Collects what a parser reads, and stops it as soon as the cap is passed."""

    def __init__(self, max_triangles: int) -> None:
        self.max_triangles = max_triangles
        self._numbers = array("d")
        self._corners = array("q")

    @property
    def points(self) -> int:
        return len(self._numbers) // 3

    @property
    def triangles(self) -> int:
        return len(self._corners) // 3

    def expect(self, points: int, triangles: int) -> None:
        """Refuse what a header claims before anything is read."""
        if points < 0 or triangles < 0:
            raise MeshError("the header has a negative count")
        if triangles > self.max_triangles:
            raise MeshError(f"more than {self.max_triangles} triangles (the file says {triangles})")
        if points > 3 * self.max_triangles:
            raise MeshError(f"more vertices than {self.max_triangles} triangles need (the file says {points})")

    def point(self, numbers: Iterable[float | str | bytes]) -> int:
        try:
            x, y, z = (float(number) for number in numbers)
        except ValueError:
            raise MeshError("a vertex is not three numbers") from None
        self._numbers.extend((x, y, z))
        if self.points > 3 * self.max_triangles:
            raise MeshError(f"more vertices than {self.max_triangles} triangles need")
        return self.points - 1

    def face(self, corners: Sequence[int]) -> None:
        """A polygon, as triangles."""
        if len(corners) < 3:
            raise MeshError("a face has fewer than three corners")
        count = self.points
        for corner in corners:
            if not 0 <= corner < count:
                raise MeshError(f"a face names vertex {corner} of {count}")
        if self.triangles + len(corners) - 2 > self.max_triangles:
            raise MeshError(f"more than {self.max_triangles} triangles")
        if len(corners) == 3:
            self._corners.extend(corners)
            return
        try:
            triangles = cut([self._numbers[3 * corner:3 * corner + 3] for corner in corners])
        except TooManyCorners as wrong:
            raise MeshError(str(wrong)) from None
        self._corners.extend(corners[at] for triangle in triangles for at in triangle)

    def take(self, points: Floats, triangles: Ints) -> None:
        """Rows that were read in one piece."""
        self.expect(len(points), len(triangles))
        self._numbers.frombytes(np.ascontiguousarray(points, dtype=np.float64).tobytes())
        self._corners.frombytes(np.ascontiguousarray(triangles, dtype=np.int64).tobytes())

    def arrays(self) -> tuple[Floats, Ints]:
        return (np.array(self._numbers, dtype=np.float64).reshape(-1, 3),
                np.array(self._corners, dtype=np.int64).reshape(-1, 3))

    def mesh(self) -> Mesh:
        return build(*self.arrays(), self.max_triangles)


def build(points: Floats, triangles: Ints, max_triangles: int) -> Mesh:
    """A mesh of rows of coordinates and rows of three indices. Raises MeshError."""
    if len(triangles) > max_triangles:
        raise MeshError(f"more than {max_triangles} triangles ({len(triangles)})")
    if not len(triangles):
        raise MeshError("no faces")
    bad = ~(np.abs(points) <= MAX_COORDINATE).all(axis=1)
    if bad.any():
        at = int(np.argmax(bad))
        raise MeshError(f"a coordinate is not finite or too large (vertex {at}: {_shown(points[at])})")
    if float((points.max(axis=0) - points.min(axis=0)).max()) < MIN_SIZE:
        raise MeshError(f"the model is smaller than {MIN_SIZE:g}")
    low, high = int(triangles.min()), int(triangles.max())
    if low < 0 or high >= len(points):
        raise MeshError(f"a face names vertex {low if low < 0 else high} of {len(points)}")
    kept, index = _merged(points + 0.0)
    merged = index[triangles]
    first, second, third = merged.T
    whole = (first != second) & (second != third) & (third != first)
    if not whole.any():
        raise MeshError("no face with three different corners")
    return Mesh(kept, merged[whole], len(points) - len(kept), int(len(whole) - whole.sum()))


def _shown(row: Floats) -> str:
    return " ".join(f"{value:g}" for value in row)


def _merged(points: Floats) -> tuple[Floats, Ints]:
    """Different points in the order of their first appearance, and for each given point which of them it is."""
    low = points.min(axis=0)
    grid = MERGE * float((points.max(axis=0) - low).max()) or 1.0
    cells = np.round((points - low) / grid).astype(np.int64)
    order = np.lexsort((cells[:, 2], cells[:, 1], cells[:, 0]))
    ordered = cells[order]
    starts = np.concatenate([[True], (ordered[1:] != ordered[:-1]).any(axis=1)])
    group = np.cumsum(starts) - 1
    first = np.minimum.reduceat(order, np.flatnonzero(starts))
    rank = np.empty(len(first), dtype=np.int64)
    by_first = np.argsort(first, kind="stable")
    rank[by_first] = np.arange(len(first))
    index = np.empty(len(points), dtype=np.int64)
    index[order] = rank[group]
    return points[first[by_first]], index
