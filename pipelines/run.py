"""Sealing in this process, on the instance of the home: what the embedded loop calls for each step.

Dagster, its instance and the rooms stay open between calls, so only the first one is slow.
"""

from __future__ import annotations

import signal
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dagster as dg

from pipelines.assets import NothingToSealError, config_of
from pipelines.checks import RedCheckError
from pipelines.definitions import definitions
from pipelines.describe import sealed_of
from pipelines.instance import PROCESS_TAG, open_instance, process_tag
from pipelines.jobs import report_run, seal_batch
from pipelines.logs import LOG_FILE, close_logs
from pipelines.partitions import PARTITIONS
from pipelines.resources import resource_for
from schemas.events import BatchSealed
from schemas.settings import Settings
from training.spec import BatchSpec


class Runner:
    """Jobs of one home, run in process. One run at a time."""

    def __init__(self, settings: Settings) -> None:
        self._instance = open_instance(settings)
        self._definitions = definitions(resource_for(settings))
        self._log = f"{self._instance.root_directory}/{LOG_FILE}"
        self._tags = {PROCESS_TAG: process_tag()}
        self._lock = threading.Lock()

    def seal(self, run_id: str, spec: BatchSpec) -> BatchSealed | None:
        try:
            result = self._run(seal_batch.name, run_id, config_of(spec))
        except NothingToSealError:
            return None
        (event,) = [event.materialization for event in result.get_asset_materialization_events()]
        return sealed_of(event.metadata)

    def report(self, run_id: str) -> None:
        self._run(report_run.name, run_id, {})

    def close(self) -> None:
        self._instance.dispose()
        close_logs(self._log)

    def _run(self, job: str, run_id: str, config: dict[str, Any]) -> dg.ExecuteInProcessResult:
        dagster_run = str(uuid.uuid4())
        with self._lock:
            if not self._instance.has_dynamic_partition(PARTITIONS, run_id):
                self._instance.add_dynamic_partitions(PARTITIONS, [run_id])
            try:
                with _signals_kept():
                    return self._definitions.resolve_job_def(job).execute_in_process(
                        instance=self._instance, partition_key=run_id, run_id=dagster_run, tags=self._tags,
                        run_config={**config, "loggers": {"file": {"config": {"path": self._log}}}})
            except dg.DagsterExecutionStepExecutionError as failed:
                raise failed.user_exception from None
            except dg.DagsterError:
                self._tell_red_checks(run_id, dagster_run)
                raise

    def _tell_red_checks(self, run_id: str, dagster_run: str) -> None:
        logs = self._instance.all_logs(dagster_run, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION)
        found = [entry.dagster_event.asset_check_evaluation_data for entry in logs if entry.dagster_event]
        red = [check for check in found if not check.passed]
        if red:
            raise RedCheckError(run_id, [(check.check_name, check.description or "") for check in red]) from None


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Dagster gives SIGTERM the handler of SIGINT; under nohup that is to ignore it, and children would inherit it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)


_runners: dict[Settings, Runner] = {}


def runner_for(settings: Settings) -> Runner:
    if settings not in _runners:
        _runners[settings] = Runner(settings)
    return _runners[settings]


def close_runners() -> None:
    while _runners:
        _runners.popitem()[1].close()


def materialize_batch(settings: Settings, run_id: str, spec: BatchSpec) -> BatchSealed | None:
    """Seal the run's next batch behind all blocking checks; None while the lake does not hold enough for it.

    Raises RedCheckError naming each check that failed and what it found; then nothing was sealed.
    """
    return runner_for(settings).seal(run_id, spec)


def materialize_report(settings: Settings, run_id: str) -> None:
    """Bring the run's report in the Dagster pages up to date."""
    runner_for(settings).report(run_id)
