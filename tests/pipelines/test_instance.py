"""The home's Dagster instance: made once, never edited again, and nothing is lost with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from pipelines.instance import PROCESS_TAG, TEMPLATE, instance_folder, open_instance, process_tag
from schemas.errors import UserError
from schemas.settings import Settings


def test_the_folder_is_made_from_the_repositorys_file(settings: Settings) -> None:
    folder = instance_folder(settings)
    assert folder == Path(settings.home) / "dagster"
    assert [path.name for path in folder.iterdir()] == ["dagster.yaml"]
    assert (folder / "dagster.yaml").read_bytes() == TEMPLATE.read_bytes()


def test_a_file_that_was_changed_stays_changed(settings: Settings) -> None:
    target = instance_folder(settings) / "dagster.yaml"
    target.write_text("telemetry: {enabled: false}\n")
    instance_folder(settings)
    assert target.read_text() == "telemetry: {enabled: false}\n"


def test_the_instance_lies_in_the_home_and_tells_nobody(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_HOME", "/nowhere")
    with open_instance(settings) as instance:
        assert not instance.telemetry_enabled
        files = {path.relative_to(settings.home).as_posix() for path in Path(settings.home).rglob("*.db")}
        assert files == {"dagster/event_log.db", "dagster/history/runs.db", "dagster/schedules/schedules.db"}


def test_a_home_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    with pytest.raises(UserError, match=r"Dagster's folder cannot be written \(Not a directory\)"):
        open_instance(Settings(home=str(tmp_path / "home")))


def test_a_damaged_instance_is_put_aside(settings: Settings) -> None:
    with open_instance(settings) as instance:
        instance.add_dynamic_partitions("training_run", ["run"])
    database = Path(settings.home) / "dagster" / "history" / "runs.db"
    database.write_bytes(b"no database at all" * 500)
    with open_instance(settings) as instance:
        assert list(instance.get_dynamic_partitions("training_run")) == []
    (aside,) = Path(settings.home).glob("dagster-damaged-*")
    assert (aside / "history" / "runs.db").exists()


def _dead_process() -> str:
    code = "from pipelines.instance import process_tag; print(process_tag())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                          cwd=TEMPLATE.parent)
    return done.stdout.strip()


def test_a_run_whose_process_was_killed_is_ended(settings: Settings) -> None:
    @dg.op
    def nothing() -> None: ...

    @dg.job
    def empty() -> None:
        nothing()

    tags = {"dead": {PROCESS_TAG: _dead_process()}, "alive": {PROCESS_TAG: process_tag()}, "foreign": {}}
    with open_instance(settings) as instance:
        runs = {name: instance.create_run_for_job(empty, status=dg.DagsterRunStatus.STARTED, tags=tag).run_id
                for name, tag in tags.items()}
    with open_instance(settings) as instance:
        states = {name: instance.get_run_by_id(run_id).status for name, run_id in runs.items()}  # type: ignore[union-attr]
    assert states == {"dead": dg.DagsterRunStatus.FAILURE, "alive": dg.DagsterRunStatus.STARTED,
                      "foreign": dg.DagsterRunStatus.STARTED}
