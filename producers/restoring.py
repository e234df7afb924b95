"""What a starting producer takes from the lake instead of reading the log from its first offset.

The lake is only ever a shortcut: without one, or with one that lags, the same facts are read from the log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from eventlog.log import EventLog, Start, TopicPartition
from producers.ownership import Ownership
from schemas.envelope import Record
from schemas.topics import REQUESTS, TRAINING, TRAJECTORIES

if TYPE_CHECKING:
    from lake.lake import Lake

_WEIGHTS = f"""select {{columns}} from raw_events where topic = '{TRAINING}' and type = 'weights.published'
    order by partition, "offset" """
_BATCH = 100_000


def restore(lake: Lake | None, log: EventLog, topics: list[str], ownership: Ownership,
            see: Callable[[list[Record]], None]) -> Start:
    """Where to read `topics` from. What lies before that is in `ownership` then, and `see` was given the weights."""
    from lake.standing import Standing, archive

    at = archive(lake, log, topics)
    if lake is None or not at:
        return "earliest"
    ours = {part: offset for part, offset in at.items() if part[0] == TRAJECTORIES}
    standing = Standing(lake, ours, [number for _, number in ours])
    ownership.finished = standing.closed
    for position, event in standing.open_events(headers_only=True):
        ownership.see(Record(position, event))
    see(_weights(lake, at))
    return at


def unfinished(lake: Lake, at: dict[TopicPartition, int], ownership: Ownership) -> set[str]:
    """Episodes that were requested before `at` and are not over."""
    from lake.snapshot import snapshot_of

    asked = lake.batches(f"select distinct episode_id from raw_requests where topic = '{REQUESTS}'", snapshot_of(at),
                         rows=_BATCH)
    return {episode for batch in asked for episode in batch.column(0).to_pylist()
            if episode not in ownership.finished}


def _weights(lake: Lake, at: dict[TopicPartition, int]) -> list[Record]:
    from lake.history import COLUMNS, read_events
    from lake.snapshot import snapshot_of

    return [Record(position, event)
            for position, event in read_events(lake, _WEIGHTS.format(columns=COLUMNS), {}, snapshot_of(at))]
