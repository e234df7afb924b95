"""The history of an episode: its events as they were appended, out of the archive."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from schemas.envelope import Event, Position, wire_type
from schemas.topics import TRAJECTORIES
from schemas.transcript import Transcript, transcript_of

if TYPE_CHECKING:
    import pyarrow as pa

    from lake.lake import Lake

COLUMNS = 'id, source, type, version, subject, sequence, epoch_us(time) as time_us, data, topic, partition, "offset"'
"""What `events_in` needs."""
_HISTORY = f"""
select {COLUMNS} from events
where topic = '{TRAJECTORIES}' and subject in (select unnest($ids::varchar[])) order by partition, "offset"
"""


def history(lake: Lake, episode_ids: Iterable[str], as_of: Mapping[str, int] | None = None) -> dict[str, list[Event]]:
    """All events of these episodes, admitted or not, in the order of the log. Unknown episodes are absent."""
    found: dict[str, list[Event]] = {}
    for _, event in read_events(lake, _HISTORY, {"ids": list(episode_ids)}, as_of):
        found.setdefault(event.subject, []).append(event)
    return found


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
    for row in batch.to_pylist():
        kind = wire_type(row["type"], row["version"]) if row["version"] else row["type"]
        yield (Position(row["topic"], row["partition"], row["offset"]),
               Event(row["id"], row["source"], kind, row["subject"], row["sequence"], row["time_us"], row["data"]))
