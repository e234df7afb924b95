"""Closing the books of a run: every requested episode has exactly one disposition, and the sum is what was asked.

What the lake says is compared with what the manifests of the run's batches decided, so a wrong row is found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from schemas.errors import NotFoundError, TrainingError
from training.manifest import load_manifest

if TYPE_CHECKING:
    from lake.lake import Lake

_REQUESTED = "select episode_id from requests where run_id = $run"
_DISPOSITIONS = "select episode_id, disposition from dispositions where run_id = $run"
_BATCHES = "select batch_id, manifest from batches where run_id = $run order by step"


def close_books(run_id: str, lake: Lake) -> dict[str, int]:
    """Episodes by disposition, `pending` included. Raises TrainingError where the accounts do not close."""
    snapshot = lake.snapshot()
    requested = Counter(lake.sql(_REQUESTED, snapshot, {"run": run_id})["episode_id"].to_pylist())
    if not requested:
        raise NotFoundError("no episode was requested for this run", value=run_id)
    rows = lake.sql(_DISPOSITIONS, snapshot, {"run": run_id}).to_pylist()
    said = Counter(row["episode_id"] for row in rows)
    if said != requested:
        wrong = (said - requested) + (requested - said)
        raise TrainingError(f"{requested.total()} episodes were requested, {said.total()} have a disposition",
                            where=f"run {run_id}", value=sorted(wrong)[:5])
    dispositions = {row["episode_id"]: row["disposition"] for row in rows}
    _check_manifests(run_id, lake, snapshot, dispositions)
    return dict(sorted(Counter(dispositions.values()).items()))


def _check_manifests(run_id: str, lake: Lake, snapshot: Mapping[str, int], dispositions: Mapping[str, str]) -> None:
    """Every decision of every batch stands, and none was made twice."""
    decided: set[str] = set()
    for batch in lake.sql(_BATCHES, snapshot, {"run": run_id}).to_pylist():
        for decision in load_manifest(batch["manifest"], lake.artifacts).dispositions:
            if decision.episode_id in decided:
                raise TrainingError("two batches decided about one episode", where=f"batch {batch['batch_id']}",
                                    value=decision.episode_id)
            decided.add(decision.episode_id)
            if dispositions.get(decision.episode_id) != decision.disposition:
                raise TrainingError(
                    f"the batch's manifest says {decision.disposition}, the lake says "
                    f"{dispositions.get(decision.episode_id)}", where=f"batch {batch['batch_id']}",
                    value=decision.episode_id)
