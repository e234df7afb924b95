"""Events of a log: the last few, or all since a moment, and then those that come.

Within a partition they keep its order; partitions are merged by the times of their events.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from eventlog import open_log
from eventlog.inspection import Inspector, PartitionRow, Scanned, inspect_log
from schemas.envelope import Record
from schemas.settings import Settings

_WINDOW = 256


class Wanted(NamedTuple):
    """Which records to show; empty fields let everything through. `episode` may be the beginning of an id."""

    topics: Sequence[str]
    episode: str = ""
    name: str = ""
    since_us: int = 0

    def matches(self, record: Record) -> bool:
        event = record.event
        if time_of(record) < self.since_us:
            return False
        if event is None:
            return not self.episode and not self.name
        return event.subject.startswith(self.episode) and self.name in ("", event.name, event.type)


def time_of(record: Record) -> int:
    if record.event is not None:
        return record.event.time_us
    return record.raw.time_us if record.raw is not None else 0


def tail(settings: Settings, wanted: Wanted, last: int | None, follow: bool,
         idle: Callable[[], None]) -> Iterator[Record]:
    """`last`: so many of those that are there; null: all of them. `idle` is called before waiting."""
    inspector = inspect_log(settings)
    try:
        rows = [row for row in inspector.partitions() if row.topic in wanted.topics]
        yield from _all(inspector, rows, wanted) if last is None else _last(inspector, rows, wanted, last)
    finally:
        inspector.close()
    if follow:
        idle()
        yield from _coming(settings, rows, wanted, idle)


def _all(inspector: Inspector, rows: Sequence[PartitionRow], wanted: Wanted) -> Iterator[Record]:
    """In memory is one record of each partition, and what their readers fetched ahead."""
    def matching(row: PartitionRow) -> Iterator[Record]:
        for item in inspector.scan(row):
            if isinstance(item, Scanned) and wanted.matches(item.record):
                yield item.record

    return heapq.merge(*map(matching, rows), key=time_of)


def _last(inspector: Inspector, rows: Sequence[PartitionRow], wanted: Wanted, count: int) -> Sequence[Record]:
    """Looks back further and further until there are enough."""
    window = max(_WINDOW, count)
    while True:
        recent = [row._replace(start=max(row.start, row.end - window)) for row in rows]
        found = deque(_all(inspector, recent, wanted), maxlen=count)
        if len(found) >= count or all(new.start == old.start for new, old in zip(recent, rows, strict=True)):
            return found
        window *= 8


def _coming(settings: Settings, rows: Sequence[PartitionRow], wanted: Wanted,
            idle: Callable[[], None]) -> Iterator[Record]:
    log = open_log(settings)
    try:
        start = {(row.topic, row.partition): row.end for row in rows}
        subscription = log.subscribe(sorted({row.topic for row in rows}), None, start)
        while True:
            records = subscription.poll(0.2)
            yield from sorted((record for record in records if wanted.matches(record)), key=time_of)
            idle()
    finally:
        log.close()
