"""One sensor: when the lake has moved on, seal what became complete.

The cursor is the snapshot that was looked at last. Off until it is switched on: `headrace demo` seals its own batches.
"""

# Dagster reads annotations at run time: no `from __future__ import annotations` here.

import json

import dagster as dg

from pipelines.assets import config_of
from pipelines.jobs import seal_batch
from pipelines.partitions import PARTITIONS, training_runs
from pipelines.ready import all_due
from pipelines.resources import HeadraceResource
from training.spec import first_spec

_INTERVAL_S = 5


@dg.sensor(job=seal_batch, minimum_interval_seconds=_INTERVAL_S, default_status=dg.DefaultSensorStatus.STOPPED)
def batches_due(context: dg.SensorEvaluationContext,
                headrace: HeadraceResource) -> dg.SensorResult | dg.SkipReason:
    """Asks for one run of `seal_batch` for each training run whose next batch is complete in the lake."""
    rooms = headrace.open()
    snapshot = rooms.lake.snapshot()
    cursor = json.dumps(snapshot, sort_keys=True)
    if context.cursor == cursor:
        return dg.SkipReason("nothing came into the lake since the last look")
    found = all_due(rooms.lake, rooms.artifacts, snapshot, first_spec(rooms.settings))
    fresh = [due.run_id for due in found if not context.instance.has_dynamic_partition(PARTITIONS, due.run_id)]
    requests = [dg.RunRequest(run_key=due.key(snapshot), partition_key=due.run_id, run_config=config_of(due.spec),
                              tags={"headrace/step": str(due.step)}) for due in found]
    return dg.SensorResult(
        run_requests=requests, cursor=cursor,
        dynamic_partitions_requests=[training_runs.build_add_request(fresh)] if fresh else [])
