"""Cgroups: made where they can be, in the form of either version, and never half."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sandboxes.spawner import cgroups
from tests.sandboxes.host import cgroups_of


def test_made_joined_limited_and_removed() -> None:
    token = f"test-{os.getpid()}"
    parents = cgroups.make_parents(token)
    if parents is None:
        pytest.skip("no cgroup can be made here: rlimits stand in")
    try:
        assert cgroups.make_parents(token) == parents  # a spawner that is started again finds them
        cgroups.make(parents, "one")
        cgroups.limit(parents, "one", 64, 10)
        doors = cgroups.doors(parents, "one")
        joining = f"import os,time;[os.write(door,b'0') for door in {doors}];print(flush=True);time.sleep(60)"
        with subprocess.Popen([sys.executable, "-c", joining], pass_fds=doors, stdout=subprocess.PIPE) as child:
            assert child.stdout and child.stdout.readline() == b"\n"
            for folder in (parents.memory, parents.pids):
                assert Path(folder, "one", "cgroup.procs").read_text().split() == [str(child.pid)]
            child.kill()
        for door in doors:
            os.close(door)
        assert Path(parents.pids, "one", "pids.max").read_text() == "10\n"
        assert cgroups.oom_kills(parents, "one") == 0
        held = cgroups.by_descriptor(parents)
        cgroups.make(held, "two")
        assert Path(parents.memory, "two").is_dir()
        for name in ("one", "two"):
            cgroups.remove(held, name)
    finally:
        for folder in {parents.memory, parents.pids}:
            os.rmdir(folder)
    assert cgroups_of(token) == []


def test_where_controllers_are_missing_there_is_none(tmp_path: Path) -> None:
    assert cgroups.make_parents("x", str(tmp_path)) is None
    for name in ("memory", "pids"):  # folders, but no cgroups
        (tmp_path / name).mkdir()
    assert cgroups.make_parents("x", str(tmp_path)) is None
    assert not list(tmp_path.glob("*/*"))
    (tmp_path / "cgroup.controllers").write_text("cpu io\n")
    assert cgroups.make_parents("x", str(tmp_path)) is None
    assert not list(tmp_path.glob("headrace*"))


@pytest.mark.parametrize(("version", "name", "text"), [
    (1, "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"),
    (2, "memory.events", "low 0\nhigh 0\nmax 12\noom 4\noom_kill 3\noom_group_kill 0\n")])
def test_the_counter_of_each_version(version: int, name: str, text: str, tmp_path: Path) -> None:
    parents = cgroups.Parents(version, str(tmp_path), str(tmp_path))
    assert cgroups.oom_kills(parents, "one") == 0
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / name).write_text(text)
    assert cgroups.oom_kills(parents, "one") == 3
