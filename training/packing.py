"""Packing: several sequences into one row of fixed length, in a fixed order, none cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from schemas.errors import TrainingError


class Place(NamedTuple):
    row: int
    position: int


def first_fit(lengths: Sequence[int], capacity: int, first_row: int = 0) -> list[Place]:
    """Where each sequence goes: the lowest row that still has room for it. Raises TrainingError if none could."""
    used: list[int] = []
    places = []
    for length in lengths:
        if length > capacity:
            raise TrainingError("sequence is longer than a row", value={"tokens": length, "row": capacity})
        row = next((row for row, taken in enumerate(used) if taken + length <= capacity), len(used))
        if row == len(used):
            used.append(0)
        places.append(Place(first_row + row, used[row]))
        used[row] += length
    return places


def one_a_row(count: int, first_row: int = 0) -> list[Place]:
    return [Place(first_row + index, 0) for index in range(count)]
