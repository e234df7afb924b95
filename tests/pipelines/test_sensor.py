"""The sensor: one look at a snapshot, one request for each run whose next batch is complete in it."""

from __future__ import annotations

import json

import dagster as dg
import pytest

from pipelines.definitions import definitions
from pipelines.resources import resource_for
from pipelines.run import materialize_batch, runner_for
from pipelines.sensors import batches_due
from tests.pipelines.conftest import SPEC
from tests.pipelines.faults import Tampered
from tests.training.world import RUN


def look(world: Tampered, cursor: str | None = None) -> dg.SensorResult | dg.SkipReason:
    instance = runner_for(world.settings)._instance
    context = dg.build_sensor_context(
        instance=instance, cursor=cursor, definitions=definitions(resource_for(world.settings)),
        resources={"headrace": resource_for(world.settings)})
    found = batches_due(context)
    assert isinstance(found, dg.SensorResult | dg.SkipReason)
    return found


@pytest.fixture
def trained(world: Tampered) -> Tampered:
    """A run that has sealed its first batch, whose spec the sensor goes on with."""
    for name in ("a", "b"):
        world.group(name, [1.0, 0.0])
    world.sink()
    assert materialize_batch(world.settings, RUN, SPEC) is not None
    world.sink()
    return world


def test_an_empty_lake_asks_for_nothing(world: Tampered) -> None:
    found = look(world)
    assert isinstance(found, dg.SensorResult)
    assert (found.run_requests, found.cursor) == ([], "{}")
    assert isinstance(look(world, found.cursor), dg.SkipReason)


def test_a_complete_batch_is_asked_for_once(trained: Tampered) -> None:
    before = look(trained)
    assert isinstance(before, dg.SensorResult) and before.run_requests == []
    for name in ("c", "d"):
        trained.group(name, [1.0, 0.0])
    trained.sink()
    found = look(trained, before.cursor)
    assert isinstance(found, dg.SensorResult)
    (request,) = found.run_requests or []
    assert (request.partition_key, request.tags["headrace/step"]) == (RUN, "1")
    assert request.run_config["ops"]["training_batch"]["config"]["spec"]["groups"] == 2
    assert json.loads(found.cursor or "") == trained.lake.snapshot()
    assert isinstance(look(trained, found.cursor), dg.SkipReason)


def test_a_half_complete_batch_is_not_asked_for(trained: Tampered) -> None:
    trained.group("c", [1.0, 0.0])
    trained.request("d", 2)
    trained.sink()
    found = look(trained)
    assert isinstance(found, dg.SensorResult) and found.run_requests == []


def test_a_request_that_came_to_nothing_is_made_again_on_a_newer_snapshot(trained: Tampered) -> None:
    """Dagster remembers run keys for ever."""
    for name in ("c", "d"):
        trained.group(name, [1.0, 0.0])
    keys = []
    for name in ("x", "y"):
        trained.request(name, 1)
        trained.sink()
        found = look(trained)
        assert isinstance(found, dg.SensorResult)
        keys += [request.run_key for request in found.run_requests or []]
    assert len(keys) == len(set(keys)) == 2


def test_an_unknown_run_gets_its_partition(trained: Tampered) -> None:
    instance = runner_for(trained.settings)._instance
    instance.delete_dynamic_partition("training_run", RUN)
    for name in ("c", "d"):
        trained.group(name, [1.0, 0.0])
    trained.sink()
    found = look(trained)
    assert isinstance(found, dg.SensorResult)
    (added,) = found.dynamic_partitions_requests or []
    assert (added.partitions_def_name, list(added.partition_keys)) == ("training_run", [RUN])


def test_what_the_sensor_asks_for_can_be_run(trained: Tampered) -> None:
    for name in ("c", "d"):
        trained.group(name, [1.0, 0.0])
    trained.sink()
    found = look(trained)
    assert isinstance(found, dg.SensorResult)
    (request,) = found.run_requests or []
    job = definitions(resource_for(trained.settings)).resolve_job_def("seal_batch")
    result = job.execute_in_process(
        instance=runner_for(trained.settings)._instance, partition_key=request.partition_key,
        run_config={**request.run_config, "loggers": {"console": {"config": {"log_level": "CRITICAL"}}}})
    (made,) = result.get_asset_materialization_events()
    assert made.materialization.metadata["step"].value == 1
