"""The one exactly-once commit: rows of one flush into their tables, `events` last.

Each table has its own application transactions, one per topic-partition, in the same Delta commit as its rows. So:
* a row below its table's position is there already (the last flush died between two tables) and is dropped;
* the check and the write use the same version of a table: whoever moved the position in between makes the write fail;
* `events` says in its own commit how far each other table is: a table that was lost is not silently begun anew;
* `events` must stand exactly where the flush starts: anything else means that another sink is ahead, or that rows
  would be missing, and nothing may be written.
On any exception the outcome is unknown: the caller drops its buffers, reloads, seeks to the lake's positions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.log import TopicPartition
from lake.writer import WriterTable
from schemas.errors import CommitConflictError, LakeError
from schemas.failpoints import hit
from schemas.tables import COMMIT_ORDER, TABLES

Positions = Mapping[TopicPartition, int]


def commit_flush(table: Callable[[str], WriterTable], rows: Mapping[str, pa.Table], start: Positions,
                 end: Positions) -> None:
    """Commit the rows of the offsets from `start` to `end`. Raises CommitConflictError or LakeError."""
    moved = {part: offset for part, offset in end.items() if offset > start[part]}
    if not moved:
        return
    events = table("events")
    for part in moved:
        at = events.position(part)
        if (at or 0) != start[part]:
            raise CommitConflictError("the lake stands elsewhere than this flush starts: another sink wrote",
                                      where=f"{part[0]}-{part[1]}", value={"lake": at, "flush": start[part]})
    hit("sink:before_write")
    promises = {}
    for name in COMMIT_ORDER[:-1]:
        if name in rows and rows[name].num_rows:
            promises[name] = _append_once(table(name), rows[name], end, events)
            hit(f"sink:after_table:{name}")
    events.append(rows.get("events", TABLES["events"].empty_table()), moved, promises)
    hit("sink:after_table:events")


def _append_once(table: WriterTable, rows: pa.Table, end: Positions, events: WriterTable) -> Positions:
    """Write those rows that the table does not have yet, and remember in the same commit how far it is now: that."""
    groups = rows.select(["topic", "partition"]).group_by(["topic", "partition"]).aggregate([]).to_pylist()
    parts = [(group["topic"], group["partition"]) for group in groups]
    for part in parts:
        if part not in end:
            raise LakeError("rows of a partition that the flush does not cover", where=table.name, value=part)
    table.require({part: events.promised(table.name, part) for part in parts})
    for part in parts:
        position = table.position(part)
        if position is not None:
            rows = rows.filter(_missing(rows, part, position))
    left = [part for part in parts if table.position(part) is None or end[part] > (table.position(part) or 0)]
    if rows.num_rows:
        table.append(rows, {part: end[part] for part in left})
    return {part: table.position(part) or 0 for part in parts}


def _missing(rows: pa.Table, part: TopicPartition, position: int) -> pa.Array:
    topic, number = part
    elsewhere = pc.or_(pc.not_equal(rows["topic"], topic), pc.not_equal(rows["partition"], number))
    return pc.or_(elsewhere, pc.greater_equal(rows["offset"], position))

