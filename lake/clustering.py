"""Rows of one episode lie together after a compaction, whatever was interleaved with them in the log: to look an
episode up is then to read one row group of a file.

In bounded memory: the keys alone are read first, to cut them into ranges of so many bytes; then each range is gathered
from the row groups that may hold it, sorted and given out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

ROW_GROUP_BYTES = 8 << 20
"""As encoded, before compression. Small enough that one episode is found quickly, large enough to scan many."""
_RANGE_BYTES = 32 << 20
_KEYS = ("episode_id", "subject")


class Range(NamedTuple):
    """Keys from `low` up to but without `high`; null: no bound. A row without a key counts as the empty one."""

    low: str | None
    high: str | None

    def mask(self, keys: pa.ChunkedArray) -> pa.ChunkedArray | None:
        """None: all."""
        keys, masks = pc.fill_null(keys, ""), []
        if self.low is not None:
            masks.append(pc.greater_equal(keys, self.low))
        if self.high is not None:
            masks.append(pc.less(keys, self.high))
        return pc.and_(*masks) if len(masks) == 2 else masks[0] if masks else None

    def may_be_in(self, told: pq.Statistics | None) -> bool:
        if told is None or not told.has_min_max or not told.has_null_count or told.null_count:
            return True
        return (self.low is None or told.max >= self.low) and (self.high is None or told.min < self.high)


def key_of(schema: pa.Schema) -> str | None:
    return next((name for name in _KEYS if name in schema.names), None)


def clustered(readers: Sequence[pq.ParquetFile], schema: pa.Schema) -> Iterator[pa.Table]:
    """All rows of the files in pieces of bounded size, row groups to be: by key, then in the order of the log."""
    rows = sum(reader.metadata.num_rows for reader in readers)
    size = sum(reader.metadata.row_group(index).total_byte_size
               for reader in readers for index in range(reader.num_row_groups))
    at_once = max(1, rows * ROW_GROUP_BYTES // max(1, size))
    key = key_of(schema)
    for part in _ranges(readers, key, rows * _RANGE_BYTES // max(1, size)):
        for table in _gathered(readers, schema, key, part):
            for start in range(0, table.num_rows, at_once):
                yield table.slice(start, at_once)


def _ranges(readers: Sequence[pq.ParquetFile], key: str | None, rows: int) -> list[Range]:
    """Each of so many rows or a few more, or of one key alone."""
    if key is None:
        return [Range(None, None)]
    keys = pa.chunked_array([chunk for reader in readers for chunk in reader.read([key]).column(key).chunks],
                            type=pa.string())
    counts = pa.table(pc.value_counts(keys).flatten(), ["key", "count"]).sort_by("key")
    cuts, waiting = [], 0
    for value, count in zip(counts["key"].to_pylist(), counts["count"].to_pylist(), strict=True):
        if waiting and waiting + count > rows and value is not None:
            cuts.append(value)
            waiting = 0
        waiting += count
    return [Range(low, high) for low, high in zip([None, *cuts], [*cuts, None], strict=True)]


def _gathered(readers: Sequence[pq.ParquetFile], schema: pa.Schema, key: str | None, part: Range) -> Iterator[pa.Table]:
    waiting: list[pa.Table] = []
    for reader in readers:
        column = reader.schema.names.index(key) if key is not None else 0
        for index in range(reader.num_row_groups):
            group = reader.metadata.row_group(index)
            if key is not None and not part.may_be_in(group.column(column).statistics):
                continue
            table = conform(reader.read_row_group(index), schema)
            if key is not None and (mask := part.mask(table.column(key))) is not None:
                table = table.filter(mask)
            waiting.append(table)
            if sum(table.nbytes for table in waiting) >= 2 * _RANGE_BYTES:
                yield _sorted(waiting, key)
                waiting = []
    if waiting:
        yield _sorted(waiting, key)


def _sorted(tables: Sequence[pa.Table], key: str | None) -> pa.Table:
    table = pa.concat_tables(tables).combine_chunks()
    order = [(name, "ascending") for name in (key, "topic", "partition", "offset") if name in table.column_names]
    return table.sort_by(order) if key is not None else table


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Columns that were added after the file was written are null in it."""
    for field in schema:
        if field.name not in table.column_names:
            table = table.append_column(field, pa.nulls(table.num_rows, field.type))
    return table.select(schema.names).cast(schema)
