"""Which runs have a batch to seal, as one snapshot of the lake has it: what the sensor asks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from artifacts.store import ArtifactStore
from schemas.ids import digest
from training.batch import next_step
from training.selection import newest_event_us, read_members, select
from training.spec import BatchSpec

if TYPE_CHECKING:
    from lake.lake import Lake

_WAITING = """
select distinct run_id from dispositions where disposition = 'pending' and reason = 'waiting_for_batch' order by run_id
"""


class Due(NamedTuple):
    """A run whose next batch can be sealed."""

    run_id: str
    step: int
    spec: BatchSpec

    def key(self, snapshot: Mapping[str, int]) -> str:
        """Names the snapshot, so that a request that came to nothing is made again when the lake has moved on."""
        return f"{self.run_id}/{self.step}@{snapshot_digest(snapshot)}"


def snapshot_digest(snapshot: Mapping[str, int]) -> str:
    return digest(repr(sorted(snapshot.items())).encode()).removeprefix("sha256:")[:16]


def due(run_id: str, lake: Lake, artifacts: ArtifactStore, snapshot: Mapping[str, int],
        first: BatchSpec) -> Due | None:
    """None while the lake does not hold enough for the run's next batch, which is made as its last one was; `first`
    is for a run without one."""
    step, before = next_step(run_id, lake, artifacts, snapshot)
    spec = before.spec if before else first
    abandoned = before.abandoned_groups if before else []
    members = read_members(run_id, lake, snapshot)
    found = select(members, spec, step, newest_event_us(run_id, lake, snapshot), abandoned)
    return Due(run_id, step, spec) if found else None


def all_due(lake: Lake, artifacts: ArtifactStore, snapshot: Mapping[str, int], first: BatchSpec) -> list[Due]:
    runs = lake.sql(_WAITING, snapshot)["run_id"].to_pylist()
    return [ready for run_id in runs if (ready := due(run_id, lake, artifacts, snapshot, first)) is not None]
