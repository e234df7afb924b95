"""Records of one partition in the order of offsets: from the log, and from the lake's archive where the log no longer
has them.

Invariants. Both give the same records: the archive keeps every event as it came, and the bytes of what was no event. A
record that neither has (its offset is a mark of a transaction) is left out; where the log was trimmed further than the
archive reaches, reading stops with a LogError instead of leaving out anything.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from eventlog.log import EventLog, Subscription, TopicPartition
from lake.history import COLUMNS, events_in
from schemas.envelope import Position, RawRecord, Record
from schemas.errors import LogError

if TYPE_CHECKING:
    from lake.lake import Lake

_RANGE = 'topic = $topic and partition = $partition and "offset" >= $low and "offset" < $high'
_EVENTS = f'select {COLUMNS} from events where {_RANGE} order by "offset"'
_LETTERS = f"""
select "offset", reason, data, epoch_us("at") as time_us from raw_dead_letters l
anti join (select topic, partition, "offset" from raw_events where {_RANGE}) using (topic, partition, "offset")
where {_RANGE} order by "offset"
"""
WINDOW = 20_000
"""Offsets that are asked for at once."""
_POLL_S = 0.1
_POLL_RECORDS = 2000
_SILENCE_S = 3.0
"""After which offsets before the log's end do not come any more: they are marks of transactions, or were trimmed."""


class ArchiveSource:
    """The lake's archive at one snapshot."""

    def __init__(self, lake: Lake, as_of: Mapping[str, int]) -> None:
        self._lake, self._as_of = lake, as_of

    def read(self, part: TopicPartition, low: int, high: int) -> Iterator[Record]:
        high = min(high, self._as_of.get(f"{part[0]}-{part[1]}", 0))
        for start in range(low, high, WINDOW):
            yield from self._window(part, start, min(start + WINDOW, high))

    def _window(self, part: TopicPartition, low: int, high: int) -> Iterator[Record]:
        asked = {"topic": part[0], "partition": part[1], "low": low, "high": high}
        letters = iter(self._lake.sql(_LETTERS, self._as_of, asked).to_pylist())
        letter = next(letters, None)
        for batch in self._lake.batches(_EVENTS, self._as_of, asked, rows=500):
            for position, event in events_in(batch):
                while letter is not None and letter["offset"] < position.offset:
                    yield _raw(part, letter)
                    letter = next(letters, None)
                yield Record(position, event)
        while letter is not None:
            yield _raw(part, letter)
            letter = next(letters, None)


def _raw(part: TopicPartition, letter: Mapping[str, object]) -> Record:
    raw = RawRecord(b"", letter["data"] or b"", (), letter["time_us"], letter["reason"])  # type: ignore[arg-type]
    return Record(Position(*part, letter["offset"]), None, raw)  # type: ignore[arg-type]


class LogSource:
    """The log; what was trimmed from it comes from the archive."""

    def __init__(self, log: EventLog, archive: ArchiveSource | None) -> None:
        self._log, self._archive = log, archive

    def read(self, part: TopicPartition, low: int, high: int) -> Iterator[Record]:
        if low >= high:
            return
        subscription = self._log.subscribe([part[0]], start="earliest")
        try:
            wanted = low
            for record in self._tail(subscription, part, low, high):
                offset = record.position.offset
                if offset > wanted:
                    yield from self._archived(part, wanted, offset, trimmed=wanted == low)
                yield record
                wanted = offset + 1
            if wanted < high:
                yield from self._archived(part, wanted, high, trimmed=wanted == low)
        finally:
            subscription.close()

    def _archived(self, part: TopicPartition, low: int, high: int, trimmed: bool) -> Iterator[Record]:
        """Offsets that the log passed over. At its beginning they were trimmed: somebody must have them."""
        found = 0
        for record in self._archive.read(part, low, high) if self._archive else ():
            found += 1
            yield record
        if trimmed and found < high - low:
            raise LogError("the log was trimmed and the archive does not hold what was", where=f"{part[0]}-{part[1]}",
                           value={"offsets": f"{low} to {high - 1}", "in the archive": found},
                           hint="nothing was changed; what is in neither of them cannot be built again")

    def _tail(self, subscription: Subscription, part: TopicPartition, low: int, high: int) -> Iterator[Record]:
        waiting = subscription.poll(0.0, 1)  # Assigns; what it brings comes again after the seek.
        while part not in subscription.assignment():
            waiting = subscription.poll(_POLL_S, 1)
        ends = self._log.ends([part[0]])
        first = waiting[0].position if waiting else None
        begins = first.offset if first and first[:2] == part else subscription.position(part)
        for other in subscription.assignment() - {part}:
            subscription.seek(other, ends[other])
        subscription.seek(part, max(low, begins))
        heard = time.monotonic()
        while subscription.position(part) < high and time.monotonic() - heard < _SILENCE_S:
            for record in subscription.poll(_POLL_S, _POLL_RECORDS):
                heard = time.monotonic()
                if record.position[:2] == part and low <= record.position.offset < high:
                    yield record
