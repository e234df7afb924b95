"""Records of one partition in the order of offsets: from the log, and from the lake's archive where the log no longer
has them as they were written.

Invariants. Both give the same records: the archive keeps every event as it came, and the bytes of what was no event. A
record that the log lost, or that is not what was written, comes from the archive; what neither has is told to `lost`,
which may raise: nothing is left out in silence. Marks of transactions are no records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from eventlog.inspection import Hole, Inspector, PartitionRow, Scanned
from eventlog.log import TopicPartition
from lake.history import COLUMNS, events_in
from schemas.envelope import Event, Position, RawRecord, Record

if TYPE_CHECKING:
    from lake.lake import Lake

_RANGE = 'topic = $topic and partition = $partition and "offset" >= $low and "offset" < $high'
_EVENTS = f'select {COLUMNS} from events where {_RANGE} order by "offset"'
_PLACES = f'select "offset" from raw_events where {_RANGE}'
_LETTERS = f"""
select "offset", reason, data, epoch_us("at") as time_us from raw_dead_letters l
anti join (select topic, partition, "offset" from raw_events where {_RANGE}) using (topic, partition, "offset")
where {_RANGE} order by "offset"
"""
WINDOW = 20_000
"""Offsets that are asked for at once."""


class Loss(NamedTuple):
    """Offsets of a partition that neither log nor archive has as they were written; first and last."""

    part: TopicPartition
    first: int
    last: int
    what: str

    def __str__(self) -> str:
        where = f"offset {self.first}" if self.first == self.last else f"offsets {self.first} to {self.last}"
        return f"the log at {self.part[0]}-{self.part[1]} {where}: {self.what}"


Lost = Callable[[Loss], None]


class ArchiveSource:
    """The lake's archive at one snapshot."""

    def __init__(self, lake: Lake, as_of: Mapping[str, int]) -> None:
        self._lake, self._as_of = lake, as_of

    def read(self, part: TopicPartition, low: int, high: int) -> Iterator[Record]:
        high = min(high, self._as_of.get(f"{part[0]}-{part[1]}", 0))
        for start in range(low, high, WINDOW):
            yield from self._window(part, start, min(start + WINDOW, high))

    def event(self, position: Position) -> Event | None:
        """What was an event when it was archived."""
        part = position.topic, position.partition
        found = next(self.read(part, position.offset, position.offset + 1), None)
        return found.event if found else None

    def places(self, part: TopicPartition, low: int, high: int) -> set[int]:
        """Offsets of events."""
        found = self._lake.sql(_PLACES, self._as_of, _asked(part, low, high)) if self._as_of else None
        return set(found.column(0).to_pylist()) if found else set()

    def _window(self, part: TopicPartition, low: int, high: int) -> Iterator[Record]:
        asked = _asked(part, low, high)
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


def _asked(part: TopicPartition, low: int, high: int) -> dict[str, object]:
    return {"topic": part[0], "partition": part[1], "low": low, "high": high}


def _raw(part: TopicPartition, letter: Mapping[str, object]) -> Record:
    raw = RawRecord(b"", letter["data"] or b"", (), letter["time_us"], letter["reason"])  # type: ignore[arg-type]
    return Record(Position(*part, letter["offset"]), None, raw)  # type: ignore[arg-type]


class LogSource:
    """The log, each record checked; what it no longer has as it was written comes from the archive."""

    def __init__(self, log: Inspector, archive: ArchiveSource | None, lost: Lost) -> None:
        self._log, self._archive, self._lost = log, archive, lost
        self._rows: dict[TopicPartition, PartitionRow] = {}
        self._places: tuple[TopicPartition, int, set[int]] = (("", 0), 0, set())

    def read(self, part: TopicPartition, low: int, high: int) -> Iterator[Record]:
        row = self._row(part, high)
        start, end = max(low, min(row.start, high)), min(high, row.end)
        if low < start:
            yield from self._archived(part, low, start - 1, "they were trimmed")
        for item in self._log.scan(row._replace(start=start, end=end)) if start < end else ():
            if isinstance(item, Scanned):
                yield self._sound(part, item)
            elif item.kind != "trimmed":
                yield from self._hole(part, item)
        if max(low, end) < high:
            yield from self._archived(part, max(low, end), high - 1, f"it ends at {row.end}, it lost its end")

    def _row(self, part: TopicPartition, high: int) -> PartitionRow:
        if part not in self._rows or self._rows[part].end < high:
            self._rows = {(row.topic, row.partition): row for row in self._log.partitions()}
        return self._rows.get(part) or PartitionRow(*part, 0, 0, None)

    def _hole(self, part: TopicPartition, hole: Hole) -> Iterator[Record]:
        if hole.kind == "missing":
            yield from self._archived(part, hole.first, hole.last, hole.detail)
        elif self._archive:  # What was compacted away may have been archived before.
            yield from self._archive.read(part, hole.first, hole.last + 1)

    def _archived(self, part: TopicPartition, first: int, last: int, what: str) -> Iterator[Record]:
        wanted = first
        for record in self._archive.read(part, first, last + 1) if self._archive else ():
            if record.position.offset > wanted:
                self._lost(Loss(part, wanted, record.position.offset - 1, what))
            wanted = record.position.offset + 1
            yield record
        if wanted <= last:
            self._lost(Loss(part, wanted, last, what))

    def _sound(self, part: TopicPartition, item: Scanned) -> Record:
        """The record as it was written. One that cannot be read, but was an event when it was archived, is damaged."""
        record, damage = item
        if not damage and record.event is not None:
            return record
        position = record.position
        kept = self._archive.event(position) if self._archive and self._was_event(part, position.offset) else None
        if kept is not None and kept != record.event:
            return Record(position, kept)
        if not damage:
            return record
        self._lost(Loss(part, position.offset, position.offset, damage))
        assert record.event is not None
        event = record.event
        return Record(position, None, RawRecord(event.subject.encode(), event.data, (), event.time_us, damage))

    def _was_event(self, part: TopicPartition, offset: int) -> bool:
        of, start, places = self._places
        if of != part or not start <= offset < start + WINDOW:
            assert self._archive is not None
            start, places = offset, self._archive.places(part, offset, offset + WINDOW)
            self._places = part, start, places
        return offset in places
