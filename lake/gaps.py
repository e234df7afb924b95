"""Offsets below the lake's position that are in none of its tables. Only the log knows what they are: marks of
transactions and aborted records leave such gaps in a sound lake, lost rows leave them in a damaged one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from eventlog.inspection import Hole, Inspector
from eventlog.log import TopicPartition
from lake.snapshot import parse_snapshot

if TYPE_CHECKING:
    from lake.lake import Lake

_GAPS = """
with spans as (
  select unnest($topics) as topic, unnest($partitions) as partition, unnest($floors) as floor, unnest($ends) as stop),
seen as (
  select topic, partition, "offset" from raw_events union select topic, partition, "offset" from raw_dead_letters),
ends as (
  select topic, partition, "offset", floor from seen join spans using (topic, partition)
  where "offset" >= floor and "offset" < stop
  union all select topic, partition, stop, floor from spans),
steps as (
  select *, coalesce(lag("offset") over (partition by topic, partition order by "offset") + 1, floor) as wanted
  from ends)
select topic, partition, wanted, "offset" - 1 as last from steps where wanted < "offset"
order by topic, partition, wanted
"""


class Gap(NamedTuple):
    """First and last offset that are missing."""

    part: TopicPartition
    first: int
    last: int

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    def __str__(self) -> str:
        return f"{self.part[0]}-{self.part[1]}: offsets {self.first} to {self.last} are missing"


def gaps(lake: Lake, snapshot: Mapping[str, int] | None = None, since: Mapping[str, int] | None = None) -> list[Gap]:
    """Between `since` (by default the beginning) and the snapshot (by default the present)."""
    snapshot = lake.snapshot() if snapshot is None else snapshot
    ends, floors = parse_snapshot(snapshot), parse_snapshot(since or {})
    if not ends:
        return []
    found = lake.sql(_GAPS, snapshot, {
        "topics": [topic for topic, _ in ends], "partitions": [number for _, number in ends],
        "floors": [min(floors.get(part, 0), end) for part, end in ends.items()], "ends": list(ends.values())})
    return [Gap((row["topic"], row["partition"]), row["wanted"], row["last"]) for row in found.to_pylist()]


def lost(found: Iterable[Gap], log: Inspector) -> Iterator[tuple[Gap, str]]:
    """What of the gaps is a loss, by the log, and how."""
    rows = {(row.topic, row.partition): row for row in log.partitions()}
    for gap in found:
        row = rows.get(gap.part)
        start, end = (max(gap.first, row.start), min(gap.last + 1, row.end)) if row else (0, 0)
        if row is None or gap.first >= row.end:
            yield gap, "the log ends before them"
            continue
        if gap.first < row.start:
            yield gap._replace(last=min(gap.last, row.start - 1)), "they were trimmed from the log"
        there = 0
        for item in log.scan(row._replace(start=start, end=end)) if start < end else ():
            if not isinstance(item, Hole):
                there += 1
            elif item.kind == "missing":
                yield Gap(gap.part, item.first, item.last), f"the log does not have them either ({item.detail})"
        if there:
            yield gap, f"the log has records at {there} of them"
        if gap.last >= row.end:
            yield gap._replace(first=row.end), "the log ends before them"
