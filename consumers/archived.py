"""What a starting verify consumer takes from the lake instead of reading the log from its first offset.

Invariant. `read` is the state of a consumer that had read its partitions up to `at` and all scores of the archive:
heads of what is open, digests of what is over, jobs for what is finished and has no live score.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from eventlog.log import EventLog, Start, TopicPartition
from schemas.enums import Termination
from schemas.errors import SchemaError
from schemas.head import Heads
from schemas.topics import SCORES, TRAJECTORIES

if TYPE_CHECKING:
    from lake.lake import Lake

NO_SCORE = frozenset({Termination.CANCELLED, Termination.INFRA_FAILURE})
_LIVE = "cause = 'live' and verifier <> ''"
_UNSCORED = f"""
select topic, partition, "offset", episode_id, coalesce(run_id, '') as run_id, submission,
  coalesce(epoch_us(finished_at), 0) as finished_at
from raw_episodes e anti join (select episode_id from raw_scores where {_LIVE}) s using (episode_id)
where submission is not null and termination not in ({", ".join(f"'{one}'" for one in sorted(NO_SCORE))})
  and list_contains($parts::integer[], partition)
order by finished_at, episode_id
"""
_SCORED_EARLY = f"""
select distinct episode_id from raw_scores anti join raw_episodes using (episode_id) where {_LIVE}
"""


class Job(NamedTuple):
    """A finished episode to score."""

    partition: TopicPartition
    offset: int
    episode_id: str
    run_id: str
    submission: str
    finished_at: int


class Found(NamedTuple):
    at: dict[TopicPartition, int]
    heads: dict[TopicPartition, Heads]
    jobs: list[Job]
    scored_early: list[str]
    """Episodes with a score in the archive whose finish is not in it yet."""


class Archived:
    """`lake` may be none, of another log, or behind: then more is left to be read from the log."""

    def __init__(self, log: EventLog, lake: Lake | None) -> None:
        self._log, self._lake = log, lake

    def start(self, topic: str) -> Start:
        """From where to read a topic."""
        return {part: offset for part, offset in self._positions().items() if part[0] == topic} or "earliest"

    def read(self, partitions: Iterable[TopicPartition]) -> Found:
        fresh = {part: Heads() for part in partitions}
        at = self._positions()
        if self._lake is None or not at:
            return Found({}, fresh, [], [])
        return _read(self._lake, at, fresh)

    def _positions(self) -> dict[TopicPartition, int]:
        from lake.standing import archive

        return archive(self._lake, self._log, [TRAJECTORIES, SCORES])


def _read(lake: Lake, at: dict[TopicPartition, int], fresh: dict[TopicPartition, Heads]) -> Found:
    from lake.snapshot import snapshot_of
    from lake.standing import Standing

    ours = {part: offset for part, offset in at.items() if part[0] == TRAJECTORIES}
    for part, heads in fresh.items():
        standing = Standing(lake, ours, [part[1]])
        heads.closed = standing.closed
        for _, event in standing.open_events():
            try:
                heads.see(event)
            except SchemaError:
                continue  # Its place in the sequence is taken all the same.
    jobs = [Job((row["topic"], row["partition"]), row["offset"], row["episode_id"], row["run_id"], row["submission"],
                row["finished_at"])
            for row in lake.sql(_UNSCORED, snapshot_of(at), {"parts": [number for _, number in fresh]}).to_pylist()]
    early = lake.sql(_SCORED_EARLY, snapshot_of(at)).column(0).to_pylist()
    return Found(at, fresh, jobs, early)
