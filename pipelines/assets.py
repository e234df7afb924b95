"""The assets: the lake as it is, the next batch of a run, and how a run stands.

The log and its lake are made elsewhere, by services; here they are external. Only the batch is made by these.
"""

# Dagster reads annotations at run time: no `from __future__ import annotations` here.

from typing import Any

import dagster as dg
import msgspec
from pydantic import Field

from pipelines import checks
from pipelines.asset_checks import BATCH, BATCH_CHECKS, LAKE, results
from pipelines.checks import CheckOutcome, RedCheckError
from pipelines.describe import batch_metadata, report_metadata
from pipelines.partitions import training_runs
from pipelines.ready import snapshot_digest
from pipelines.resources import HeadraceResource
from pipelines.rooms import Rooms
from schemas.errors import ConfigError, TrainingError
from training.batch import Built, next_step, seal
from training.manifest import Manifest, load_manifest
from training.spec import BatchSpec, first_spec

GROUP = "headrace"
trajectory_lake = dg.AssetSpec(
    LAKE, group_name=GROUP, kinds={"deltalake", "parquet"},
    description="All that the log held up to a snapshot, as tables. Written by the sink, exactly once.")


class NothingToSealError(TrainingError):
    """The lake does not hold enough episodes for the run's next batch yet."""

    code = "nothing-to-seal"


class BatchConfig(dg.Config):
    """How the batch is chosen, packed and trained on: fields of BatchSpec. Empty: as the run's last batch."""

    spec: dict[str, Any] = Field(default_factory=dict)


def config_of(spec: BatchSpec) -> dict[str, Any]:
    """Run configuration of the asset."""
    return {"ops": {"training_batch": {"config": {"spec": msgspec.to_builtins(spec)}}}}


@dg.asset(key=BATCH, group_name=GROUP, partitions_def=training_runs, deps=[trajectory_lake], check_specs=BATCH_CHECKS,
          kinds={"arrow"})
def training_batch(context: dg.AssetExecutionContext, config: BatchConfig, headrace: HeadraceResource):  # type: ignore[no-untyped-def]
    """The next batch of a training run: sealed once, named in the log, the same bytes whenever it is built again.

    A batch with a red check is not sealed, so no learner sees it.
    """
    rooms, run_id = headrace.open(), context.partition_key
    outcomes: list[CheckOutcome] = []

    def inspect(built: Built) -> None:
        outcomes.extend(inspected(built.manifest, built.batch, rooms))
        red = [(outcome.name, outcome.found) for outcome in outcomes if not outcome.passed]
        if red:
            raise RedCheckError(run_id, red)

    try:
        sealed = seal(run_id, _spec(config, run_id, rooms), lake=rooms.lake, artifacts=rooms.artifacts, log=rooms.log,
                      inspect=inspect)
    except RedCheckError:
        yield from results(outcomes, BATCH)
        raise
    if sealed is None:
        raise NothingToSealError("no complete batch is in the lake yet", where=f"run {run_id}",
                                 hint="`headrace status` shows what is pending")
    manifest = load_manifest(sealed.manifest.digest, rooms.artifacts)
    if not outcomes:  # It was sealed before.
        outcomes = inspected(manifest, rooms.artifacts.get(manifest.batch.digest), rooms)
    yield dg.MaterializeResult(
        metadata=batch_metadata(sealed, manifest), check_results=results(outcomes, BATCH), data_version=dg.DataVersion(
            f"{snapshot_digest(sealed.snapshot)}-{sealed.sha256.removeprefix('sha256:')[:16]}"))


def inspected(manifest: Manifest, batch: bytes, rooms: Rooms) -> list[CheckOutcome]:
    return [checks.check_staleness(manifest, batch), checks.check_batch_accounts(rooms.lake, manifest)]


def _spec(config: BatchConfig, run_id: str, rooms: Rooms) -> BatchSpec:
    if not config.spec:
        before = next_step(run_id, rooms.lake, rooms.artifacts, rooms.lake.snapshot())[1]
        return before.spec if before else first_spec(rooms.settings)
    try:
        return msgspec.convert(config.spec, BatchSpec)
    except msgspec.ValidationError as wrong:
        raise ConfigError(f"batch spec is wrong ({wrong})", where="config of training_batch",
                          value=config.spec) from None


@dg.asset(group_name=GROUP, partitions_def=training_runs, deps=[training_batch], kinds={"duckdb"})
def run_report(context: dg.AssetExecutionContext, headrace: HeadraceResource) -> dg.MaterializeResult:  # type: ignore[type-arg]
    """Held-out reward by version, the steps' metrics and the accounts of a training run."""
    return dg.MaterializeResult(metadata=report_metadata(context.partition_key, headrace.open().lake))
