"""Rows that dead letters have become, added to tables that went on long ago: exactly once, and no position moves.

Each table has a redrive counter that moves in the same commit as the rows, and what is there already is looked up after
the counter was read: so of two redrives that meet one fails and adds nothing, and one that died half-way is finished by
the next. `redrives` comes last and says which letters are rows now.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from lake.files import add_action, spans_of, write_file
from lake.tablelog import TableLog
from lake.tables import create_table, table_exists
from schemas.ids import now_us
from schemas.tables import TABLES

if TYPE_CHECKING:
    from lake.lake import Lake

_COUNTER = "headrace/redrive"
_PLACE = ["topic", "partition", "offset"]
_THERE = """
select distinct topic, partition, "offset" from raw_{table}
semi join (select unnest($topics) as topic, unnest($partitions) as partition, unnest($offsets) as "offset")
  using (topic, partition, "offset")
"""


def add_missing(lake: Lake, table: str, rows: pa.Table) -> int:
    """Add rows of positions that the table has no row of; how many. Raises CommitConflictError."""
    tables = lake.tables
    if not table_exists(tables, table):
        create_table(tables, table, lake.identity)
    log = TableLog(tables, table)
    counter = log.transactions.get(_COUNTER, 0)
    rows = _without(rows, _there(lake, table, rows))
    if rows.num_rows:
        action = add_action(write_file(tables.at(table), rows), spans_of(rows), data_change=True)
        log.commit([action], {_COUNTER: counter + 1})
    return int(rows.num_rows)


def mark(lake: Lake, places: Sequence[tuple[str, int, int]]) -> None:
    """Say that the letters at these positions are rows now."""
    topics, partitions, offsets = zip(*places, strict=True)
    rows = pa.table([list(topics), list(partitions), list(offsets), [now_us()] * len(places)],
                    schema=TABLES["redrives"])
    add_missing(lake, "redrives", rows)


def _there(lake: Lake, table: str, rows: pa.Table) -> set[tuple[object, ...]]:
    columns = [rows.column(name).to_pylist() for name in _PLACE]
    found = lake.sql(_THERE.format(table=table), None, dict(zip(("topics", "partitions", "offsets"), columns,
                                                                strict=True)))
    return set(zip(*(found.column(name).to_pylist() for name in _PLACE), strict=True))


def _without(rows: pa.Table, there: set[tuple[object, ...]]) -> pa.Table:
    places = zip(*(rows.column(name).to_pylist() for name in _PLACE), strict=True)
    return rows.filter(pa.array([place not in there for place in places], pa.bool_()))
