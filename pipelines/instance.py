"""The Dagster instance of a home: `dagster/` in it. `make ui` shows the same one that batches are sealed on.

It is a view of what log and lake hold: nothing is lost with it, and a damaged one is put aside.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from schemas.errors import UnavailableError, UserError
from schemas.ids import new_id
from schemas.settings import Settings

if TYPE_CHECKING:
    import dagster as dg

TEMPLATE = Path(__file__).resolve().parent.parent / "dagster.yaml"
PROCESS_TAG = "headrace/process"
_log = logging.getLogger("headrace.pipelines")


def instance_folder(settings: Settings) -> Path:
    """The folder that DAGSTER_HOME names, made if need be, with a copy of the repository's dagster.yaml."""
    folder = Path(settings.home).absolute() / "dagster"
    target = folder / "dagster.yaml"
    if target.exists():
        return folder
    if not TEMPLATE.exists():
        raise UnavailableError("dagster.yaml is not beside the packages", where=str(TEMPLATE),
                               hint="install from the repository: make setup")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        beside = folder / f".{new_id()}.part"
        beside.write_bytes(TEMPLATE.read_bytes())
        beside.rename(target)
    except OSError as wrong:
        raise UserError(f"Dagster's folder cannot be written ({wrong.strerror})", where=str(folder),
                        hint="choose a writable --home") from None
    return folder


def open_instance(settings: Settings) -> dg.DagsterInstance:
    """The instance, fit for use."""
    import sqlalchemy

    _write_lightly()
    folder = instance_folder(settings)
    try:
        return _opened(folder)
    except sqlalchemy.exc.DatabaseError as wrong:
        if isinstance(wrong, sqlalchemy.exc.OperationalError):  # Locked, or not writable: nothing is damaged.
            raise UserError(f"Dagster's database cannot be used: {wrong.orig}", where=str(folder)) from None
        aside = folder.with_name(f"dagster-damaged-{new_id()}")
        _log.warning("Dagster's database is damaged (%s); it was moved to %s", wrong.orig, aside)
        folder.rename(aside)
        return _opened(instance_folder(settings))


def _opened(folder: Path) -> dg.DagsterInstance:
    import dagster as dg

    with _dagster_home(folder):
        instance = dg.DagsterInstance.from_config(str(folder))
        for storage in (instance.run_storage, instance.event_log_storage, instance.schedule_storage):
            assert storage is not None  # They open at first use, and then must find DAGSTER_HOME.
    _end_orphans(instance)
    return instance


@contextmanager
def _dagster_home(folder: Path) -> Iterator[None]:
    """For dagster.yaml, which names its own folder by this variable."""
    before = os.environ.get("DAGSTER_HOME")
    os.environ["DAGSTER_HOME"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["DAGSTER_HOME"]
        else:
            os.environ["DAGSTER_HOME"] = before


def _end_orphans(instance: dg.DagsterInstance) -> None:
    """Runs of in-process sealers that were killed would be shown as running for ever."""
    import dagster as dg

    unended = [dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED]
    for run in instance.get_runs(filters=dg.RunsFilter(statuses=unended)):
        process = run.tags.get(PROCESS_TAG)
        if process is not None and not _alive(process):
            instance.report_run_failed(run, "the process that ran it ended")


@cache
def _write_lightly() -> None:
    """Dagster opens and closes a database for each of some hundred small writes of a run, and with a sync for each
    they cost more than the batch. A killed process loses nothing by this; a machine that fails may damage the view."""
    import sqlalchemy

    @sqlalchemy.event.listens_for(sqlalchemy.engine.Engine, "connect")
    def set_synchronous(connection: object, _: object) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("pragma synchronous=off").close()


def process_tag() -> str:
    """This process, told apart from a later one with its number."""
    return f"{os.getpid()}@{psutil.Process().create_time():.3f}"


def _alive(process: str) -> bool:
    number, _, created = process.partition("@")
    try:
        return f"{psutil.Process(int(number)).create_time():.3f}" == created
    except (psutil.Error, ValueError):
        return False
