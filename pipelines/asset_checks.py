"""The checks of `pipelines/checks.py` as Dagster asset checks. All block: what stands downstream of a red one is not
run, and the run fails."""

# Dagster reads annotations at run time: no `from __future__ import annotations` here.

from collections.abc import Iterator, Sequence
from functools import partial

import dagster as dg

from eventlog.inspection import inspect_log
from pipelines import checks
from pipelines.checks import CheckOutcome
from pipelines.resources import HeadraceResource
from training.batch import next_step

LAKE = dg.AssetKey("trajectory_lake")
BATCH = dg.AssetKey("training_batch")


def _spec(name: str, asset: dg.AssetKey, what: str) -> dg.AssetCheckSpec:
    return dg.AssetCheckSpec(name, asset=asset, blocking=True, description=what)


LAKE_CHECKS = [
    _spec("offsets_contiguous", LAKE, "No offset is missing since the run's last batch."),
    _spec("event_ids_unique", LAKE, "No record is there twice, and no admitted event bears another's id."),
    _spec("reward_range", LAKE, "Rewards lie in [0, 1] and stand only beside verdicts that are ok."),
    _spec("infra_failure_rate", LAKE, "Infrastructure ended few of the episodes since the run's last batch."),
    _spec("accounts_closed", LAKE, "Every requested episode has exactly one disposition."),
]
BATCH_CHECKS = [
    _spec("staleness_bound", BATCH, "No trained token was sampled by weights too far behind."),
    _spec("batch_accounts", BATCH, "Each episode is decided once, was meant for training, and is in no other batch."),
]


@dg.multi_asset_check(name="lake_checks", specs=LAKE_CHECKS)
def lake_checks(context: dg.AssetCheckExecutionContext, headrace: HeadraceResource) -> Iterator[dg.AssetCheckResult]:
    """Before a batch is sealed: is the lake fit for it? Also notes how many rows the lake holds now."""
    rooms = headrace.open()
    lake, run_id = rooms.lake, context.run.tags.get("dagster/partition")
    snapshot = lake.snapshot()
    before = next_step(run_id, lake, rooms.artifacts, snapshot)[1] if run_id else None
    since = before.snapshot if before else None
    contiguous = checks.check_offsets_contiguous(lake, since=since, snapshot=snapshot,
                                                 log=partial(inspect_log, rooms.settings))
    outcomes = [
        contiguous,
        checks.check_event_ids_unique(lake, since=since, snapshot=snapshot),
        checks.check_reward_range(lake, snapshot=snapshot),
        checks.check_infra_failure_rate(lake, run_id, since=since, snapshot=snapshot),
        checks.check_accounts_closed(lake, run_id),
    ]
    context.op_execution_context.log_event(dg.AssetObservation(
        LAKE, metadata={"dagster/row_count": sum(snapshot.values()), "snapshot": dict(snapshot)}))
    yield from results(outcomes, LAKE)


def results(outcomes: Sequence[CheckOutcome], asset: dg.AssetKey) -> list[dg.AssetCheckResult]:
    return [dg.AssetCheckResult(check_name=outcome.name, asset_key=asset, passed=outcome.passed,
                                description=outcome.found, metadata=outcome.metadata) for outcome in outcomes]
