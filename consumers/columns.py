"""Rows to Arrow tables: token buffers become list columns without passing through Python numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from consumers.rows import Row, dead_letter
from schemas.envelope import EARLIEST_US, LATEST_US, Position
from schemas.tables import TABLES

_MISFITS = (pa.ArrowException, OverflowError, TypeError, ValueError)


class RowBuffer:
    """Rows of one flush, by table."""

    def __init__(self) -> None:
        self._rows: dict[str, list[tuple[Any, ...]]] = {}
        self.size = 0

    def add(self, rows: Iterable[Row]) -> None:
        for table, values in rows:
            self._rows.setdefault(table, []).append(values)
            self.size += 1

    def clear(self) -> None:
        self._rows = {}
        self.size = 0

    def tables(self) -> dict[str, pa.Table]:
        """Arrow tables of all rows. A row that fits no column type (an integer beyond 64 bits, a time that is no date)
        is a dead letter."""
        letters: list[tuple[Any, ...]] = self._rows.get("dead_letters", [])
        made = {name: _table(name, rows, letters) for name, rows in self._rows.items() if name != "dead_letters"}
        if letters:
            made["dead_letters"] = _columns(TABLES["dead_letters"], [_dated(letter) for letter in letters])
        return made


def _table(name: str, rows: list[tuple[Any, ...]], letters: list[tuple[Any, ...]]) -> pa.Table:
    schema = TABLES[name]
    try:
        return _columns(schema, rows)
    except _MISFITS:
        fitting, refused = _sort_out(schema, rows)
        letters.extend(_refused(name, values) for values in refused)
        return _columns(schema, fitting)


def _sort_out(schema: pa.Schema, rows: list[tuple[Any, ...]]) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    fitting, refused = [], []
    for values in rows:
        try:
            _columns(schema, [values])
            fitting.append(values)
        except _MISFITS:
            refused.append(values)
    return fitting, refused


def _refused(name: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
    row = dict(zip(TABLES[name].names, values, strict=True))
    position = Position(row["topic"], row["partition"], row["offset"])
    reason = f"a value does not fit its column in table {name}"
    return dead_letter(position, reason, row.get("data") or b"", None).values


def _dated(letter: tuple[Any, ...]) -> tuple[Any, ...]:
    """A dead letter keeps what came, but no time that is no date."""
    at_us = letter[-1]
    return letter if at_us is None or EARLIEST_US <= at_us <= LATEST_US else (*letter[:-1], None)


def _columns(schema: pa.Schema, rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pa.table([_column(field, values) for field, values in zip(schema, columns, strict=True)], schema=schema)


def _column(field: pa.Field, values: Sequence[Any]) -> pa.Array:
    if pa.types.is_list(field.type):
        return _lists(field.type, values)
    if pa.types.is_timestamp(field.type):
        _require_dates(field.name, values)
    return pa.array(values, type=field.type)


def _require_dates(name: str, values: Sequence[int | None]) -> None:
    told = [value for value in values if value is not None]
    if told and not EARLIEST_US <= min(told) <= max(told) <= LATEST_US:
        raise ValueError(f"{name} holds a time that is no date")


def _lists(kind: pa.ListType, buffers: Sequence[bytes | None]) -> pa.Array:
    """One list for each little-endian buffer of 4-byte values."""
    lengths = np.fromiter((len(buffer or b"") // 4 for buffer in buffers), dtype=np.int64, count=len(buffers))
    offsets = np.zeros(len(buffers) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    dtype = "<i4" if pa.types.is_int32(kind.value_type) else "<f4"
    values = pa.array(np.frombuffer(b"".join(buffer or b"" for buffer in buffers), dtype=dtype), type=kind.value_type)
    mask = pa.array([buffer is None for buffer in buffers], type=pa.bool_())
    return pa.ListArray.from_arrays(pa.array(offsets), values, type=kind, mask=mask)
