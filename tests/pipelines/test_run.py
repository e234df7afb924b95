"""A batch is sealed in process, on the home's instance, behind blocking checks."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from pipelines.checks import RedCheckError
from pipelines.describe import sealed_of
from pipelines.run import close_runners, materialize_batch, materialize_report, runner_for
from schemas.errors import ConfigError, TrainingError
from schemas.events import BatchSealed, StepCompleted
from schemas.topics import TRAINING
from tests.pipelines.conftest import SPEC
from tests.pipelines.faults import Tampered, first_of
from tests.training.world import RUN
from training.manifest import load_manifest
from training.rebuild import rebuild
from training.spec import BatchSpec


def fill(world: Tampered, *groups: str, version: int = 0) -> None:
    for index, name in enumerate(groups):
        world.group(name, [1.0, index / 10], version=version)


def next_batch(world: Tampered, spec: BatchSpec = SPEC) -> BatchSealed | None:
    world.sink()
    return materialize_batch(world.settings, RUN, spec)


def materializations(world: Tampered, asset: str) -> list[dg.AssetMaterialization]:
    instance = runner_for(world.settings)._instance
    found = instance.fetch_materializations(dg.AssetKey(asset), limit=20).records
    return [record.asset_materialization for record in found if record.asset_materialization]


def evaluations(world: Tampered, dagster_run: str) -> dict[str, bool]:
    """Whether each check passed, as the pages show it."""
    logs = runner_for(world.settings)._instance.all_logs(
        dagster_run, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION)
    told = [entry.dagster_event.asset_check_evaluation_data for entry in logs if entry.dagster_event]
    assert all(check.blocking and check.description for check in told)
    return {check.check_name: check.passed for check in told}


def sealed_count(world: Tampered) -> int:
    return world.log.ends([TRAINING])[TRAINING, 0]


def test_batches_of_a_run_are_sealed_one_after_the_other(world: Tampered) -> None:
    fill(world, "a", "b", "c", "d")
    first, second, none = next_batch(world), next_batch(world), next_batch(world)
    assert first is not None and second is not None
    assert (first.step, second.step, none) == (0, 1, None)
    world.sink()
    assert rebuild(first.batch_id, lake=world.lake, artifacts=world.artifacts).outcome == "identical"
    newest, oldest = materializations(world, "training_batch")
    assert sealed_of(oldest.metadata) == first
    assert sealed_of(newest.metadata) == second
    assert (newest.partition, newest.metadata["step"].value) == (RUN, 1)
    assert newest.tags is not None and oldest.tags is not None
    assert newest.tags["dagster/data_version"] != oldest.tags["dagster/data_version"]


def test_a_batch_that_was_sealed_is_the_same_batch_again(world: Tampered) -> None:
    """As after a crash between `batch.sealed` and what follows: the lake does not hold it yet."""
    fill(world, "a", "b")
    first = next_batch(world)
    count = sealed_count(world)
    assert materialize_batch(world.settings, RUN, SPEC) == first
    assert sealed_count(world) == count


def test_the_pages_show_what_is_in_a_batch(world: Tampered) -> None:
    fill(world, "a", "b")
    assert next_batch(world) is not None
    (made,) = materializations(world, "training_batch")
    shown: dict[str, Any] = dict(made.metadata)
    assert {name: shown[name].value for name in ("episodes", "sequences", "tokens", "trained_tokens")} == {
        "episodes": 4, "sequences": 4, "tokens": 22, "trained_tokens": 12}
    assert (shown["reward_mean"].value, shown["dagster/row_count"].value) == (0.525, 4)
    (row,) = shown["dispositions"].value.records
    assert row.data == {"disposition": "trained", "reason": "", "episodes": 4}
    assert shown["rewards"].value.startswith("![rewards of the batch, 0 to 1](data:image/png;base64,")
    assert sum(len(str(value.value)) for value in shown.values()) < 20_000


def test_the_lake_is_observed_and_every_check_is_told(world: Tampered) -> None:
    fill(world, "a", "b")
    assert next_batch(world) is not None
    instance = runner_for(world.settings)._instance
    (seen,) = instance.fetch_observations(dg.AssetKey("trajectory_lake"), limit=5).records
    assert seen.asset_observation is not None
    assert seen.asset_observation.metadata["snapshot"].value == world.lake.snapshot()
    (run,) = instance.get_runs()
    assert evaluations(world, run.run_id) == dict.fromkeys([
        "offsets_contiguous", "event_ids_unique", "reward_range", "infra_failure_rate", "accounts_closed",
        "staleness_bound", "batch_accounts"], True)


def test_a_red_check_of_the_lake_keeps_the_batch_from_being_sealed(world: Tampered) -> None:
    fill(world, "a", "b")
    (odd,) = world.request("odd", 1)
    world.play(odd, 1.5)
    says = rf"check failed, `reward_range`: .*{odd} \(status ok, reward 1.5\)"
    with pytest.raises(TrainingError, match=says) as caught:
        next_batch(world)
    assert caught.value.where == f"run {RUN}"
    assert sealed_count(world) == 0
    assert materializations(world, "training_batch") == []


def test_all_red_checks_are_told_at_once(world: Tampered) -> None:
    fill(world, "a", "b")
    world.pour(lambda rows: [
        *(row for index, row in enumerate(rows) if index != first_of(rows, "events", type="turn.generated")),
        rows[first_of(rows, "events", type="episode.finished")]])
    with pytest.raises(TrainingError, match=r"checks failed, `offsets_contiguous`: .*; `event_ids_unique`: "):
        materialize_batch(world.settings, RUN, SPEC)


def test_a_batch_of_tokens_from_the_future_is_never_sealed(world: Tampered) -> None:
    fill(world, "a", "b", version=3)
    with pytest.raises(RedCheckError, match="`staleness_bound`: version 0 is trained on 12 tokens of versions 0 to 3"):
        next_batch(world)
    assert sealed_count(world) == 0
    (run,) = runner_for(world.settings)._instance.get_runs()
    assert run.status == dg.DagsterRunStatus.FAILURE
    assert evaluations(world, run.run_id)["staleness_bound"] is False


def test_the_next_batch_is_sealed_after_a_fault_is_gone(world: Tampered) -> None:
    fill(world, "a", "b")
    (odd,) = world.request("odd", 1)
    world.play(odd, termination="infra_failure")
    (other,) = world.request("other", 1)
    world.play(other, termination="infra_failure")
    with pytest.raises(TrainingError, match="`infra_failure_rate`"):
        next_batch(world)
    fill(world, "c", "d", "e")
    sealed = next_batch(world)
    assert sealed is not None and sealed.step == 0


def test_two_runs_are_two_partitions(world: Tampered) -> None:
    fill(world, "a", "b")
    assert next_batch(world) is not None
    assert materialize_batch(world.settings, "another run", SPEC) is None
    assert set(runner_for(world.settings)._instance.get_dynamic_partitions("training_run")) == {RUN, "another run"}


def test_the_run_carries_the_whole_spec(world: Tampered) -> None:
    fill(world, "a", "b")
    spec = BatchSpec(groups=2, group_size=2, sequence_length=64, minibatches=1, seed=9, total_steps=7)
    sealed = next_batch(world, spec)
    assert sealed is not None
    assert load_manifest(sealed.manifest.digest, world.artifacts).spec == spec


def test_a_spec_that_is_wrong_is_named(world: Tampered) -> None:
    fill(world, "a", "b")
    world.sink()
    runner = runner_for(world.settings)
    for spec, says in (({"groups": "many"}, r"Expected `int`, got `str` - at `\$\.groups`"),
                       ({"grups": 2}, "unknown field `grups`"),
                       ({"groups": 0}, "`groups` of a batch must be positive")):
        with pytest.raises(ConfigError, match=says):
            runner._run("seal_batch", RUN, {"ops": {"training_batch": {"config": {"spec": spec}}}})


def test_without_a_spec_the_run_goes_on_as_before(world: Tampered) -> None:
    fill(world, "a", "b")
    assert next_batch(world) is not None
    fill(world, "c", "d")
    world.sink()
    runner_for(world.settings)._run("seal_batch", RUN, {})
    newest = materializations(world, "training_batch")[0]
    assert load_manifest(sealed_of(newest.metadata).manifest.digest, world.artifacts).spec == SPEC


def test_the_report_shows_held_out_reward_steps_and_accounts(world: Tampered) -> None:
    fill(world, "a", "b")
    for version, reward in ((0, 0.25), (0, 0.75), (1, 1.0)):
        (held_out,) = world.request(f"held-out-{version}-{reward}", 1, purpose="eval")
        world.play(held_out, reward, version=version)
    (script,) = world.request("scripted", 1, purpose="eval", policy="scripted:reference")
    world.play(script, 0.0, logprobs=False)  # Sampled by no weights: no point of the curve.
    sealed = next_batch(world)
    assert sealed is not None
    world.append(StepCompleted(run_id=RUN, step=0, batch_id=sealed.batch_id, metrics={"loss": -0.5}, at=1), RUN)
    world.sink()
    materialize_report(world.settings, RUN)
    (made,) = materializations(world, "run_report")
    shown: dict[str, Any] = dict(made.metadata)
    assert [record.data for record in shown["held_out_reward"].value.records] == [
        {"version": 0, "episodes": 2, "reward": 0.5, "standard_error": pytest.approx(0.25)},
        {"version": 1, "episodes": 1, "reward": 1.0, "standard_error": ""}]
    assert (shown["held_out_first"].value, shown["held_out_last"].value) == (0.5, 1.0)
    (step,) = [record.data for record in shown["step_metrics"].value.records]
    assert (step["step"], step["loss"], step["kl"]) == (0, -0.5, "")
    assert [record.data for record in shown["dispositions"].value.records] == [
        {"disposition": "evaluated", "episodes": 4}, {"disposition": "trained", "episodes": 4}]


def test_dagster_speaks_to_its_file_only(world: Tampered, capfd: pytest.CaptureFixture[str],
                                         caplog: pytest.LogCaptureFixture) -> None:
    fill(world, "a", "b")
    with caplog.at_level(logging.DEBUG):
        assert next_batch(world) is not None
        assert next_batch(world) is None
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")
    assert [record for record in caplog.records if record.name.startswith("dagster")] == []
    assert "STEP_SUCCESS" in (Path(world.settings.home) / "dagster" / "headrace.log").read_text()


def test_another_process_goes_on_with_the_same_instance(world: Tampered) -> None:
    fill(world, "a", "b", "c", "d")
    assert next_batch(world) is not None
    close_runners()
    assert next_batch(world) is not None
    assert len(materializations(world, "training_batch")) == 2
