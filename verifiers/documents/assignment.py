"""Pairs two lists so that the sum of their pairs' worth is greatest. The first of equal pairings is taken, always the
same one."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.errors import UnavailableError


def assign(worth: Sequence[Sequence[float]]) -> list[tuple[int, int]]:
    """Pairs (row, column), each row and column at most once; pairs worth nothing are left out."""
    if not worth or not worth[0]:
        return []
    try:
        import numpy
        from scipy.optimize import linear_sum_assignment
    except ImportError:
        raise UnavailableError("rows of a document are paired by the package scipy",
                               hint="pip install 'headrace[documents]'") from None

    rows, columns = linear_sum_assignment(numpy.asarray(worth), maximize=True)
    return [(int(row), int(column)) for row, column in zip(rows, columns, strict=True) if worth[row][column] > 0]
