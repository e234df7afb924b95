"""The reaper takes what dead owners left, whoever they were, and nothing of anybody who lives."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from artifacts.store import DirectoryStore
from sandboxes import reaper
from sandboxes.bubblewrap import BubblewrapBackend
from sandboxes.reaper import LOCK, Lease, OwnerFolder, Rounds
from sandboxes.sandbox import SandboxSpec
from sandboxes.spawner import cgroups
from tests.conftest import REPOSITORY
from tests.sandboxes.conftest import open_here
from tests.sandboxes.host import cgroups_of, mounts_of, namespace_of, processes_in, wait_for_end

HOLDER = """
import sys
from pathlib import Path
from sandboxes.reaper import OwnerFolder
folder = OwnerFolder(Path(sys.argv[1]))
(folder.path / "lives").mkdir()
print(folder.token, flush=True)
sys.stdin.read()
"""


def hold(root: Path) -> tuple[subprocess.Popen[bytes], Path]:
    """An owner in a process of its own, and its folder."""
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(root)], cwd=REPOSITORY, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE)
    assert holder.stdout
    return holder, root / holder.stdout.readline().decode().strip()


def kill(holder: subprocess.Popen[bytes]) -> None:
    holder.kill()
    holder.communicate()


def test_neither_a_process_id_nor_an_age_decides(tmp_path: Path) -> None:
    """A dead owner's number is another process's now; a living owner's folder is old; both are told by the lock."""
    root = tmp_path / "sandboxes"
    living, kept = hold(root)
    dead, left = hold(root)
    kill(dead)
    now_ours = Lease(pid=os.getpid(), started_ticks=reaper.started_ticks(os.getpid()) or 0, host="here", opened_us=1)
    (left / LOCK).write_bytes(msgspec.json.encode(now_ours))
    left = left.rename(root / f"{os.getpid()}-{now_ours.started_ticks}-1-abcdef")
    gone = Lease(pid=dead.pid, started_ticks=1, host="elsewhere", opened_us=1)
    (kept / LOCK).write_bytes(msgspec.json.encode(gone))
    long_ago = time.time() - 10 * 24 * 3600
    for path in (kept / LOCK, kept):
        os.utime(path, (long_ago, long_ago))
    assert reaper.reap(root) == 1
    assert kept.is_dir() and not left.exists()
    kill(living)
    assert reaper.reap(root) == 1 and list(root.iterdir()) == []


def test_a_stopped_owner_is_alive_but_its_leases_end(tmp_path: Path, artifacts: DirectoryStore) -> None:
    open_here("bubblewrap", tmp_path / "probe", artifacts).close()
    text = """
import sys, threading
from pathlib import Path
from artifacts.store import DirectoryStore
from sandboxes import open_backend
from sandboxes.sandbox import SandboxSpec
from sandboxes.spawner import cgroups
from schemas.settings import Settings
from tests.sandboxes.host import namespace_of
backend = open_backend(Settings(home=sys.argv[1]), DirectoryStore(Path(sys.argv[1]) / "artifacts"))
sandbox = backend.acquire(SandboxSpec(lease_s=3.0))
space = namespace_of(sandbox)
threading.Thread(target=sandbox.exec, args=(["sleep", "600"],), kwargs={"deadline_s": 600}, daemon=True).start()
print(space, backend.folder.token, flush=True)
sys.stdin.read()
"""
    owner = subprocess.Popen([sys.executable, "-c", text, str(tmp_path / "home")], cwd=REPOSITORY,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert owner.stdout
    space, token = owner.stdout.readline().decode().split()
    owner.send_signal(signal.SIGSTOP)
    try:
        wait_for_end(processes_in(space))
        assert reaper.reap(tmp_path / "home/sandboxes") == 0
        assert (tmp_path / "home/sandboxes" / token).is_dir()
    finally:
        kill(owner)
    assert reaper.reap(tmp_path / "home/sandboxes") in (0, 1)


def test_an_owner_that_works_takes_away_what_others_leave_meanwhile(bubblewrap: BubblewrapBackend) -> None:
    """216 containers, 105 GB: the reaper had only run at start (aimee#1951)."""
    dead, left = hold(bubblewrap.root)
    kill(dead)
    bubblewrap.acquire(SandboxSpec()).close()
    assert left.is_dir()  # not yet
    bubblewrap._rounds._due = 0.0
    bubblewrap.acquire(SandboxSpec()).close()
    bubblewrap._rounds.close()
    assert not left.exists() and bubblewrap.folder.path.is_dir()


def test_rounds_come_one_at_a_time_and_a_bad_disk_ends_none() -> None:
    going, others, count = threading.Event(), threading.Event(), [0]

    def reap() -> None:
        count[0] += 1
        others.set()
        assert going.wait(30)
        raise OSError("the disk fails")

    rounds = Rounds(reap, every_s=0.0)
    rounds.tick()
    assert others.wait(30)
    for _ in range(20):
        rounds.tick()
    assert count == [1]
    going.set()
    assert rounds._running
    rounds._running.join()
    rounds.tick()
    rounds.close()
    assert count == [2]
    rounds.tick()
    assert count == [2]


def test_the_next_run_is_safe_from_the_reaper_of_the_last(tmp_path: Path, artifacts: DirectoryStore) -> None:
    """A reaper that outlived its session took the containers of the next one (testcontainers-elixir#23)."""
    open_here("bubblewrap", tmp_path / "home", artifacts).close()
    stop = threading.Event()

    def reap_on() -> None:
        while not stop.is_set():
            reaper.reap(tmp_path / "home/sandboxes")

    reapers = [threading.Thread(target=reap_on) for _ in range(2)]
    for thread in reapers:
        thread.start()
    try:
        for _ in range(3):
            backend = open_here("bubblewrap", tmp_path / "home", artifacts)
            sandbox = backend.acquire(SandboxSpec(files={"a": b"x"}))
            assert sandbox.exec(["cat", "a"]).stdout == b"x"
            sandbox.snapshot()
            backend.close()
    finally:
        stop.set()
        for thread in reapers:
            thread.join()
    assert list((tmp_path / "home/sandboxes").iterdir()) == []


def test_many_reapers_at_once_and_none_is_in_the_others_way(tmp_path: Path) -> None:
    root = tmp_path / "sandboxes"
    for _ in range(4):
        dead, left = hold(root)
        for number in range(50):
            (left / "lives" / str(number) / "upper").mkdir(parents=True)
        kill(dead)
    living, kept = hold(root)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(reaper.reap, [root] * 8))
    assert list(root.iterdir()) == [kept]
    kill(living)


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that all users may write to."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        yield Path(folder)


def test_what_belongs_to_another_user_is_left_to_them(shared: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can be two users")
    dead, left = hold(shared)
    kill(dead)
    (left / LOCK).chmod(0o600)
    os.seteuid(65534)
    try:
        assert reaper.reap(shared) == 0
        mine = OwnerFolder(shared)
        assert reaper.reap(shared) == 0
        mine.remove()
    finally:
        os.seteuid(0)
    assert left.is_dir() and reaper.reap(shared) == 1


def test_what_lies_in_a_dead_owners_folder_leads_nowhere(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    root = tmp_path / "sandboxes"
    dead, left = hold(root)
    (left / "lives/link").symlink_to(outside)
    os.mkfifo(left / "lives/pipe")
    (left / "lives/shut").mkdir(mode=0)
    (root / "linked").symlink_to(outside)
    (root / "a file").write_text("x")
    kill(dead)
    named = [str(outside), "/sys/fs/cgroup", "/sys/fs/cgroup/memory"]  # nor do the cgroups that it names
    (left / LOCK).write_bytes(msgspec.json.encode(
        Lease(pid=1, started_ticks=1, host="x", opened_us=1, cgroups=named)))
    assert reaper.reap(root) == 1
    assert (outside / "kept").read_text() == "x" and not left.exists() and (root / "linked").is_symlink()


def test_cgroups_of_dead_owners_are_swept_whose_homes_are_gone(tmp_path: Path) -> None:
    """Not those of the living, nor those of whom nobody can say from here whether they live."""
    folder = OwnerFolder(tmp_path / "sandboxes")
    pid, ticks, namespace, mark = folder.token.split("-")
    another, earlier = f"{pid}-{int(ticks) - 1}", f"{pid}-{mark}"
    swept = [f"{another}-{namespace}-{mark}", f"{2**22 + 1}-{ticks}-{namespace}-{mark}"]
    kept = [folder.token, f"{another}-1-{mark}", earlier, "other"]
    for token in (*swept, *kept):
        (tmp_path / "above" / cgroups.name_of(token)).mkdir(parents=True)
    reaper.sweep_cgroups([str(tmp_path / "above" / cgroups.name_of(folder.token))])
    assert {path.name for path in (tmp_path / "above").iterdir()} == {cgroups.name_of(token) for token in kept}
    folder.remove()


def test_a_sandbox_outlives_the_thread_that_asked_for_it(bubblewrap: BubblewrapBackend) -> None:
    """A death signal is bound to a thread: sandboxes died with the one that had started them (bubblewrap#692)."""
    found = []
    thread = threading.Thread(target=lambda: found.append(bubblewrap.acquire(SandboxSpec(files={"a": b"x"}))))
    thread.start()
    thread.join()
    assert not thread.is_alive()
    assert found[0].exec(["cat", "a"]).stdout == b"x"
    found[0].close()


def test_a_process_in_a_session_of_its_own_does_not_keep_a_sandbox_alive(bubblewrap: BubblewrapBackend) -> None:
    """Background processes outlived what had started them, and bwrap with them (bubblewrap#105, #529)."""
    before = mounts_of()
    sandbox = bubblewrap.acquire(SandboxSpec())
    space = namespace_of(sandbox)
    session = sandbox.session("shell")
    assert session.run("(setsid nohup sleep 600 >/dev/null 2>&1 &); echo started").stdout == b"started\n"
    inside = processes_in(space)
    assert len(inside) >= 2
    sandbox.close()
    assert processes_in(space) == [] and mounts_of() == before
    assert all(sandbox.id not in str(path) for path in cgroups_of(bubblewrap.folder.token))
