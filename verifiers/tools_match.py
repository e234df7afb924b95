"""Whether a call is the wanted one, and whether calls come in the wanted order.

Values are compared as JSON: 1 equals 1.0, true is no number, 1.0 and "1" differ, the order of an object's keys does not
count and that of a list does. Texts are compared as they read (`exact`: an accent may be a mark of its own), without
regard to case and width (`fold`), or `loose`: also without regard to spaces and punctuation, but never so that two
numbers become one (1.5 is not 15, -5 is not 5).
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

ORDERS = ("exact", "subsequence", "set", "graph")
SEARCH_STEPS = 20_000
ABSENT = ""
"""Among alternatives: the argument may be left out."""
_Text = Callable[[str], str]


def exact(text: str) -> str:
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def fold(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def loose(text: str) -> str:
    text = re.sub(r"\s+", " ", fold(text)).replace("**", "^")
    text = re.sub(r"(?<=\d)[ ,/_]+(?=\d)", "|", text)
    text = re.sub(r"[ ,/_'\"]", "", text)
    text = re.sub(r"(?<=\d)-(?=\d)", "|", text)
    return re.sub(r"-(?!\d)|\.(?!\d)", "", text)


TEXTS: Mapping[str, _Text] = {"exact": exact, "fold": fold, "loose": loose}


def same(got: Any, want: Any, text: _Text = exact) -> bool:
    """Whether two JSON values are equal."""
    if isinstance(got, bool) or isinstance(want, bool):
        return got is want
    if isinstance(got, int | float) and isinstance(want, int | float):
        return got == want and not math.isnan(got)
    if isinstance(got, str) and isinstance(want, str):
        return got == want or text(got) == text(want) != ""
    if isinstance(got, list) and isinstance(want, list):
        return len(got) == len(want) and all(same(a, b, text) for a, b in zip(got, want, strict=True))
    if isinstance(got, dict) and isinstance(want, dict):
        return got.keys() == want.keys() and all(same(got[key], want[key], text) for key in want)
    return got is None and want is None


def accepted(got: Any, alternatives: Sequence[Any], text: _Text) -> bool:
    """Whether a value is one of the alternatives. In an object, each key has alternatives of its own, at any depth."""
    options = [option for option in alternatives if not (isinstance(option, str) and option == ABSENT)] or alternatives
    return any(_accepted(got, option, text) for option in options)


def _accepted(got: Any, option: Any, text: _Text) -> bool:
    if isinstance(option, dict) and all(isinstance(value, list) for value in option.values()):
        return isinstance(got, dict) and fits(got, option, text)
    if isinstance(option, list):
        return isinstance(got, list) and len(got) == len(option) and all(
            _accepted(a, b, text) for a, b in zip(got, option, strict=True))
    return same(got, option, text)


def fits(got: Mapping[str, Any], wanted: Mapping[str, list[Any]], text: _Text) -> bool:
    """Whether named values are as wanted: no other names, and only what has ABSENT among its alternatives left out."""
    if set(got) - set(wanted):
        return False
    return all(accepted(got[name], options, text) if name in got
               else any(isinstance(option, str) and option == ABSENT for option in options)
               for name, options in wanted.items())


def matched(order: str, matrix: Sequence[Sequence[bool]], edges: Sequence[tuple[int, int]] = ()) -> list[int | None]:
    """For each wanted call the position of the call that is it, or None. `matrix[wanted][got]`.

    `exact`: position by position; `subsequence`: in this order, with others between; `set`: in any order, as many as
    can be paired; `graph`: as `set`, but of each edge (i, j) call i comes before call j, and all or none.
    """
    count = len(matrix[0]) if matrix else 0
    if order == "exact":
        return [at if at < count and row[at] else None for at, row in enumerate(matrix)]
    if order == "subsequence":
        return _subsequence(matrix, count)
    if order == "set":
        return _pairs(matrix, count)
    return _graph(matrix, count, edges)


def _subsequence(matrix: Sequence[Sequence[bool]], count: int) -> list[int | None]:
    """A longest common subsequence."""
    rows = len(matrix)
    best = [[0] * (count + 1) for _ in range(rows + 1)]
    for i in range(rows - 1, -1, -1):
        for j in range(count - 1, -1, -1):
            best[i][j] = best[i + 1][j + 1] + 1 if matrix[i][j] else max(best[i + 1][j], best[i][j + 1])
    found: list[int | None] = [None] * rows
    i = j = 0
    while i < rows and j < count:
        if matrix[i][j]:
            found[i], i, j = j, i + 1, j + 1
        elif best[i + 1][j] >= best[i][j + 1]:
            i += 1
        else:
            j += 1
    return found


def _pairs(matrix: Sequence[Sequence[bool]], count: int) -> list[int | None]:
    """A largest matching: one call may fit two wanted ones of which only it can be the second."""
    owner: list[int | None] = [None] * count

    def place(wanted: int, tried: set[int]) -> bool:
        for got in range(count):
            if matrix[wanted][got] and got not in tried:
                tried.add(got)
                held = owner[got]
                if held is None or place(held, tried):
                    owner[got] = wanted
                    return True
        return False

    for wanted in range(len(matrix)):
        place(wanted, set())
    found: list[int | None] = [None] * len(matrix)
    for got, wanted_at in enumerate(owner):
        if wanted_at is not None:
            found[wanted_at] = got
    return found


def _graph(matrix: Sequence[Sequence[bool]], count: int, edges: Sequence[tuple[int, int]]) -> list[int | None]:
    nothing: list[int | None] = [None] * len(matrix)
    found = list(nothing)
    before: dict[int, list[int]] = {at: [i for i, j in edges if j == at] for at in range(len(matrix))}
    turns = topological(before)
    steps = 0

    def place(at: int) -> bool:
        nonlocal steps
        if at == len(turns):
            return True
        wanted = turns[at]
        first = max((position + 1 for i in before[wanted] if (position := found[i]) is not None), default=0)
        for got in range(first, count):
            steps += 1
            if steps > SEARCH_STEPS:
                return False
            if matrix[wanted][got] and got not in found:
                found[wanted] = got
                if place(at + 1):
                    return True
                found[wanted] = None
        return False

    return found if place(0) else nothing


def topological(before: Mapping[int, Sequence[int]]) -> list[int]:
    """An order in which everything comes after what is before it. Raises ValueError for a circle."""
    placed: list[int] = []
    while len(placed) < len(before):
        ready = [at for at in before if at not in placed and all(i in placed for i in before[at])]
        if not ready:
            raise ValueError("the order has a circle")
        placed += ready
    return placed
