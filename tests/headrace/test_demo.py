"""The whole loop as a user runs it: killed at several moments, started again with the same command, and audited."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from headrace.rooms import Rooms
from sandboxes import probe
from schemas.settings import Settings
from schemas.topics import TOPICS
from tests.conftest import require_real

DEADLINE_S = 600


@contextmanager
def demo(home: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "headrace", "demo", "--steps", "1", "--home", str(home)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def wait_for_events(home: Path, topic: str, count: int, process: subprocess.Popen[str]) -> None:
    """Until the demo's log holds so many events of a topic."""
    while not (home / "log.db").exists():
        assert process.poll() is None
    with Rooms(Settings(home=str(home))) as rooms:
        subscription = rooms.log.subscribe([topic])
        seen = 0
        while seen < count:
            seen += len(subscription.poll(timeout_s=0.5))
            assert process.poll() is None, process.communicate()[0]
        subscription.close()


def child_of(process: subprocess.Popen[str], word: str) -> psutil.Process:
    return next(c for c in psutil.Process(process.pid).children() if word in c.cmdline())


def left_behind(home: Path) -> list[str]:
    """Processes and mounts that still name the home."""
    processes = [
        " ".join(p.info["cmdline"])
        for p in psutil.process_iter(["cmdline"])
        if p.info["cmdline"] and str(home) in " ".join(p.info["cmdline"])
    ]
    return processes + [line for line in Path("/proc/mounts").read_text().splitlines() if str(home) in line]


@pytest.mark.timeout(DEADLINE_S)
def test_killed_and_started_again_it_ends_well_and_the_books_close(tmp_path: Path) -> None:
    if why := probe("bubblewrap"):
        require_real("bubblewrap", why)
    if missing := [name for name in ("torch", "megatron") if find_spec(name) is None]:
        require_real("the learner", f"{' and '.join(missing)} not installed")
    home = tmp_path / "home of a demo"
    for topic, count in (("requests", 40), ("trajectories", 900), ("training", 1)):
        with demo(home) as process:
            wait_for_events(home, topic, count, process)
            os.killpg(process.pid, signal.SIGKILL)
    with demo(home) as process:
        wait_for_events(home, "trajectories", 1500, process)
        child_of(process, "produce").kill()
        child_of(process, "verify").kill()
        child_of(process, "sink").kill()
        output, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, output
    assert re.search(r"held-out reward first: 0\.\d+\nheld-out reward last: 0\.\d+", output)
    assert "produce died and was started again" in output
    audit(home, output)


def audit(home: Path, output: str) -> None:
    with Rooms(Settings(home=str(home))) as rooms:
        lake = rooms.lake
        ends = rooms.log.ends(TOPICS)
        assert {part: end for part, end in lake.positions().items() if end} == {
            part: end for part, end in ends.items() if end
        }
        assert lake.verify() == []
        (books,) = lake.sql(
            "select count(*) as n, count(distinct episode_id) as d, count(*) filter (disposition = 'pending') as p,"
            " (select count(*) from requests) as r from dispositions"
        ).to_pylist()
        assert (books["d"], books["p"], books["r"]) == (books["n"], 0, books["n"])
        assert f"of {books['n']} requested" in output
    checked = subprocess.run(
        [sys.executable, "-m", "headrace", "batches", "rebuild", "--all", "--check", "--home", str(home)],
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "1 of 1 batches identical" in checked.stdout
    assert list((home / "reports").glob("*.png"))
    assert left_behind(home) == []
