"""The history of an episode: its events as they were appended, out of the archive and, for what the sink has not copied
yet, out of the log's tail."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from schemas.envelope import Event, Position, wire_type
from schemas.topics import TRAJECTORIES, partition_for
from schemas.transcript import Transcript, transcript_of

if TYPE_CHECKING:
    import pyarrow as pa

    from eventlog.log import EventLog, TopicPartition
    from lake.lake import Lake

COLUMNS = 'id, source, type, version, subject, sequence, epoch_us(time) as time_us, data, topic, partition, "offset"'
"""What `events_in` needs."""
_HISTORY = f"""
select {COLUMNS} from events
where topic = '{TRAJECTORIES}' and subject in (select unnest($ids::varchar[])) order by partition, "offset"
"""
_POLL_S = 0.1
_SILENCE_S = 3.0
"""After which offsets before the log's end do not come any more: they are marks of transactions."""


def history(lake: Lake, episode_ids: Iterable[str], as_of: Mapping[str, int] | None = None) -> dict[str, list[Event]]:
    """All events of these episodes, admitted or not, in the order of the log. Unknown episodes are absent."""
    found: dict[str, list[Event]] = {}
    for _, event in read_events(lake, _HISTORY, {"ids": list(episode_ids)}, as_of):
        found.setdefault(event.subject, []).append(event)
    return found


def history_now(lake: Lake, log: EventLog, episode_ids: Iterable[str]) -> dict[str, list[Event]]:
    """The same at this moment, wherever the sink is: the archive up to its position, then the log."""
    from lake.snapshot import snapshot_of
    from lake.standing import archive

    wanted = set(episode_ids)
    at = archive(lake, log, [TRAJECTORIES])
    found = history(lake, wanted, snapshot_of(at)) if at else {}
    ends = log.ends([TRAJECTORIES])
    ours = {(TRAJECTORIES, partition_for(name, log.partitions(TRAJECTORIES))) for name in wanted}
    start = {part: min(at.get(part, 0), end) if part in ours else end for part, end in ends.items()}
    for event in _tail(log, start, ends):
        if event.subject in wanted:
            found.setdefault(event.subject, []).append(event)
    return found


def _tail(log: EventLog, start: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> Iterator[Event]:
    left = {part for part, end in ends.items() if start[part] < end}
    if not left:
        return
    subscription = log.subscribe([TRAJECTORIES], start=start)
    try:
        heard = time.monotonic()
        while left and time.monotonic() - heard < _SILENCE_S:
            for position, event, _ in subscription.poll(_POLL_S):
                heard = time.monotonic()
                part = (position.topic, position.partition)
                if event is not None and start[part] <= position.offset < ends[part]:
                    yield event
            assigned = subscription.assignment()
            left = {part for part in left if part not in assigned or subscription.position(part) < ends[part]}
    finally:
        subscription.close()


def transcripts(lake: Lake, episode_ids: Iterable[str],
                as_of: Mapping[str, int] | None = None) -> dict[str, Transcript]:
    """The folded histories. Unknown episodes are absent."""
    return {episode_id: transcript_of(episode_id, events)
            for episode_id, events in history(lake, episode_ids, as_of).items()}


def read_events(lake: Lake, query: str, parameters: Mapping[str, object],
                as_of: Mapping[str, int] | None = None) -> Iterator[tuple[Position, Event]]:
    """Events of a query that selects COLUMNS, a few thousand in memory at a time."""
    for batch in lake.batches(query, as_of, dict(parameters)):
        yield from events_in(batch)


def events_in(batch: pa.RecordBatch) -> Iterator[tuple[Position, Event]]:
    """A null that only a damaged table holds is the empty value."""
    for row in batch.to_pylist():
        kind = wire_type(row["type"], row["version"]) if row["version"] else row["type"]
        sequence = -1 if row["sequence"] is None else row["sequence"]
        yield (Position(row["topic"], row["partition"], row["offset"]),
               Event(row["id"] or "", row["source"] or "", kind or "", row["subject"] or "", sequence,
                     row["time_us"] or 0, row["data"] or b""))
