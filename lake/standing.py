"""Where the episodes of some partitions stood at a snapshot: what a reader needs to go on from there.

A reader that restarts takes the ids of what is over (as digests, see `schemas.idset`) and the events of what is open
from the archive, and reads the log from the snapshot on. Its cost follows the open work: of finished episodes nothing
but sequence numbers, types and a digest each is looked at.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from eventlog.log import EventLog, TopicPartition
from lake.history import COLUMNS, read_events
from lake.snapshot import snapshot_of
from schemas.envelope import Event, Position
from schemas.errors import HeadraceError
from schemas.idset import IdSet
from schemas.topics import TRAJECTORIES

if TYPE_CHECKING:
    from lake.lake import Lake

_OURS = f"topic = '{TRAJECTORIES}' and admitted and list_contains($parts::integer[], partition)"
_OVER = f"select unhex(md5(subject)) from raw_events where {_OURS} and type = 'episode.finished' and version > 0"
_BEGUN = f'select subject, partition, "offset" from raw_events where {_OURS} and sequence = 0'
_HEADERS = COLUMNS.replace(" data,", " ''::blob as data,")
_BATCH = 100_000
_WINDOW = 50_000
"""Offsets that are sorted at once, so that memory does not grow with what is open."""
_LOGGER = logging.getLogger("headrace.lake")


class Standing:
    """The archive up to the positions `at`, of trajectories in these partitions."""

    def __init__(self, lake: Lake, at: Mapping[TopicPartition, int], partitions: Iterable[int]) -> None:
        self.at, self._lake = dict(at), lake
        self._as_of = snapshot_of(self.at)
        self._parts = sorted(partitions)
        self.closed = IdSet()
        """Episodes that are over."""
        self._opened: dict[str, tuple[int, int]] = {}
        if self.at and self._parts:
            self._read()

    def _read(self) -> None:
        parts = {"parts": self._parts}
        for batch in self._lake.batches(_OVER, self._as_of, parts, rows=_BATCH):
            self.closed.add_digests(b"".join(batch.column(0).to_pylist()))
        for batch in self._lake.batches(_BEGUN, self._as_of, parts, rows=_BATCH):
            for subject, partition, offset in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                if subject not in self.closed:
                    self._opened[subject] = partition, offset

    def open_events(self, headers_only: bool = False) -> Iterator[tuple[Position, Event]]:
        """All admitted events of episodes that are open, in the order of the log. Without payloads if only headers are
        asked for."""
        return admitted_events(self._lake, self.at, self._opened, headers_only)


def admitted_events(lake: Lake, at: Mapping[TopicPartition, int], episodes: Mapping[str, tuple[int, int]],
                    headers_only: bool = False) -> Iterator[tuple[Position, Event]]:
    """Admitted events of episodes below `at`, by partition in the order of the log. `episodes` says in which partition
    each lies and at which offset it begins."""
    query = f"""select {_HEADERS if headers_only else COLUMNS} from raw_events
        where topic = '{TRAJECTORIES}' and admitted and partition = $partition and "offset" >= $low and "offset" < $high
          and subject in (select unnest($ids::varchar[])) order by "offset" """
    for partition in sorted({number for number, _ in episodes.values()}):
        first = {name: offset for name, (number, offset) in episodes.items() if number == partition}
        for low in range(min(first.values()), at.get((TRAJECTORIES, partition), 0), _WINDOW):
            span = {"partition": partition, "low": low, "high": low + _WINDOW, "ids": list(first)}
            yield from read_events(lake, query, span, snapshot_of(at))


def archive(lake: Lake | None, log: EventLog, topics: Iterable[str]) -> dict[TopicPartition, int]:
    """Positions of these topics up to which the lake can be read instead of the log. Empty where it is none of this
    log, cannot be read, or is ahead of a log that lost its end."""
    if lake is None:
        return {}
    try:
        at = lake.positions() if lake.identity == log.identity else {}
    except HeadraceError as wrong:
        _LOGGER.warning("reading the log from its beginning, since the lake cannot be read: %s", wrong)
        return {}
    ends = log.ends(list(topics))
    found = {part: at.get(part, 0) for part in ends}
    return found if at and all(found[part] <= end for part, end in ends.items()) else {}
