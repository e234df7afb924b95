"""`headrace run` on a real Kafka broker, killed and started again: the results of a calm one on the embedded log."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from eventlog import open_log
from headrace.rooms import Rooms
from schemas.settings import Settings
from schemas.topics import TRAJECTORIES
from tests.conftest import REPOSITORY
from tests.eventlog.conftest import broker, kafka_settings  # noqa: F401 (fixtures)

_RESULTS = """
select e.task_id, e.termination, s.status, s.reward, count(*) as n
from episodes e left join current_scores s using (episode_id) where e.run_id = $run group by all order by all
"""
_RUNS = "select run_id, count(*) as n from requests group by 1 order by min(requested_at)"


@contextmanager
def running(settings: Settings) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "headrace", "run", "--tasks", "math", "--policy", "scripted:reference",
               "--samples", "2", "--home", settings.home, "--log", settings.log]
    process = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout:
            process.stdout.close()


def killed_in_the_middle(settings: Settings) -> None:
    """The whole process group, once it has written some events of episodes."""
    with running(settings) as process:
        log = open_log(settings)
        reader = log.subscribe([TRAJECTORIES])
        seen = 0
        while seen < 10:
            seen += len(reader.poll(0.5))
            assert process.poll() is None, process.communicate()[0]
        reader.close()
        log.close()


def completed(settings: Settings) -> None:
    with running(settings) as process:
        told, _ = process.communicate(timeout=180)
        assert process.returncode == 0, told


def results(settings: Settings) -> list[list[dict[str, object]]]:
    """Of each run, oldest first."""
    with Rooms(settings) as rooms:
        assert rooms.lake.verify() == []
        runs = [row["run_id"] for row in rooms.lake.sql(_RUNS).to_pylist()]
        return [rooms.lake.sql(_RESULTS, parameters={"run": run}).to_pylist() for run in runs]


def test_a_run_on_kafka_that_was_killed_gives_what_the_embedded_log_gives(
        kafka_settings: Settings, tmp_path: Path) -> None:  # noqa: F811
    embedded = Settings(home=str(tmp_path / "embedded"))
    completed(embedded)
    (wanted,) = results(embedded)
    killed_in_the_middle(kafka_settings)
    completed(kafka_settings)
    assert results(kafka_settings) == [wanted, wanted]
    assert all(row["reward"] == 1.0 for row in wanted)
