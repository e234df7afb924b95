"""What Dagster loads. A change of the graph is a change here, on purpose."""

from __future__ import annotations

import dagster as dg
import pytest
from msgspec import to_builtins

from pipelines.definitions import defs
from pipelines.resources import HeadraceResource, resource_for
from schemas.errors import ConfigError
from schemas.settings import Settings, resolve

GRAPH = {
    "trajectory_lake": ((), False, "none"),
    "training_batch": (("trajectory_lake",), True, "training_run"),
    "run_report": (("training_batch",), True, "training_run"),
}
"""Asset to what it stands on, whether Dagster makes it, and its partitions."""
CHECKS = {
    ("trajectory_lake", "offsets_contiguous"), ("trajectory_lake", "event_ids_unique"),
    ("trajectory_lake", "reward_range"), ("trajectory_lake", "infra_failure_rate"),
    ("trajectory_lake", "accounts_closed"), ("training_batch", "staleness_bound"), ("training_batch", "batch_accounts"),
}


def test_definitions_load() -> None:
    dg.Definitions.validate_loadable(defs)


def test_the_graph_is_this_one() -> None:
    graph = defs.resolve_asset_graph()
    found = {}
    for key in graph.get_all_asset_keys():
        node = graph.get(key)
        partitions = getattr(node.partitions_def, "name", "none")
        found[key.to_user_string()] = (
            tuple(sorted(parent.to_user_string() for parent in node.parent_keys)), node.is_materializable, partitions)
    assert found == GRAPH


def test_every_check_is_there_and_blocks() -> None:
    specs = {(key.asset_key.to_user_string(), key.name): defs.resolve_asset_graph().get_check_spec(key)
             for key in defs.resolve_asset_graph().asset_check_keys}
    assert specs.keys() == CHECKS
    assert all(spec.blocking and spec.description for spec in specs.values())


@pytest.mark.parametrize(("job", "steps"), [
    ("seal_batch", {"lake_checks", "training_batch"}), ("report_run", {"run_report"})])
def test_jobs_run_these_steps(job: str, steps: set[str]) -> None:
    assert {node.name for node in defs.resolve_job_def(job).nodes} == steps


def test_the_sensor_is_off_until_it_is_switched_on() -> None:
    sensor = defs.resolve_sensor_def("batches_due")
    assert sensor.default_status == dg.DefaultSensorStatus.STOPPED
    assert sensor.job_name == "seal_batch"


def test_the_resource_has_exactly_the_settings_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_LAKE_MEMORY_MB", "64")
    settings = Settings(home="somewhere", lake_memory_mb=128)
    resource = resource_for(settings)
    assert resource.settings == to_builtins(settings)
    assert resolve(resource.settings).settings == settings


def test_a_resource_without_settings_reads_the_environment(
        monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HEADRACE_HOME", str(home))
    from pipelines.rooms import close_rooms

    rooms = HeadraceResource().open()
    assert rooms.settings.home == str(home)
    assert rooms is HeadraceResource().open()
    close_rooms()


def test_a_setting_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(ConfigError, match="unknown setting"):
        HeadraceResource(settings={"hme": "x"}).open()
