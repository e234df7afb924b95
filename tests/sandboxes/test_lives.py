"""Lives leak nothing, `kill -9` leaves nothing, and the reaper takes only what is dead."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from artifacts.store import DirectoryStore
from sandboxes import reaper
from sandboxes.bubblewrap import BubblewrapBackend
from sandboxes.helper import Spawner
from sandboxes.sandbox import Backend, SandboxSpec
from sandboxes.spawner.loop import AHEAD
from schemas.errors import SandboxError
from tests.conftest import REPOSITORY
from tests.sandboxes.conftest import open_here
from tests.sandboxes.host import (
    cgroups_of,
    children_of,
    descriptors_of,
    members_of,
    mounts_of,
    namespace_of,
    parent_of,
    processes_in,
    wait_for_end,
    wait_for_lock,
)

LIVES = 100


def live(backend: Backend, number: int) -> None:
    sandbox = backend.acquire(SandboxSpec(files={"n": b"%d" % number}))
    try:
        result = sandbox.exec(["sh", "-c", "cat n; echo more > m; sleep 60 &"])
        assert result.stdout == b"%d" % number, result
        assert sandbox.read("m") == b"more\n"
        sandbox.snapshot()
    finally:
        sandbox.close()


def state_of(backend: BubblewrapBackend) -> dict[str, object]:
    folders = [path for path in backend.root.rglob("*") if not {"lower", "lives"} & {*path.parts}]
    return {"own mounts": mounts_of(), "own descriptors": descriptors_of(), "folders": sorted(folders)}


def counts_of(backend: BubblewrapBackend) -> dict[str, int]:
    """What the sandboxes that are started ahead have some of."""
    wait_for_all_ahead(backend)
    pids = backend.spawner_pids
    return {"spawner mounts": sum(len(mounts_of(pid)) for pid in pids),
            "spawner descriptors": sum(map(descriptors_of, pids)),
            "cgroups": len(cgroups_of(backend.folder.token)), "processes": len(members_of(os.getpgid(pids[0]))),
            "layers": len(list(backend.folder.path.glob("lives/*")))}


def wait_for_all_ahead(backend: BubblewrapBackend) -> set[int]:
    """The processes of all sandboxes that are started ahead, when they are there and no other is."""
    pids, until = backend.spawner_pids, time.monotonic() + 60
    while time.monotonic() < until:
        found = {child for pid in pids for child in children_of(pid)} - {*pids}
        if len(found) == AHEAD * len(pids):
            return found
    raise AssertionError(f"not {AHEAD} ahead for each of {pids}")


def test_lives_leak_nothing(bubblewrap: BubblewrapBackend) -> None:
    live(bubblewrap, 0)
    before, counted = state_of(bubblewrap), counts_of(bubblewrap)
    for number in range(LIVES):
        live(bubblewrap, number)
        with pytest.raises(SandboxError):
            bubblewrap.acquire(SandboxSpec(readonly={"/a/b": Path("/dev/null"), "/a/b/c": Path("/dev/null")}))
    assert state_of(bubblewrap) == before
    grown = {name: count - counted[name] for name, count in counts_of(bubblewrap).items()}
    assert max(grown.values()) < LIVES / 2, grown
    assert (bubblewrap.folder.path / "spawner.log").read_text() == ""  # who asked was told
    token = bubblewrap.folder.token
    bubblewrap.close()
    assert cgroups_of(token) == [] and list(bubblewrap.root.iterdir()) == []


def test_no_mount_is_seen_by_the_host(bubblewrap: BubblewrapBackend) -> None:
    before = mounts_of()
    sandbox = bubblewrap.acquire(SandboxSpec())
    assert mounts_of() == before
    outer = parent_of(processes_in(namespace_of(sandbox))[0])
    assert [line for line in mounts_of(outer) if " overlay " in line]
    for pid in bubblewrap.spawner_pids:
        assert not [line for line in mounts_of(pid) if " overlay headrace " in line]
    sandbox.close()


def test_sandboxes_are_started_before_anybody_asks(bubblewrap: BubblewrapBackend) -> None:
    """By each of the helper processes, and each is handed out once."""
    assert len(bubblewrap.spawner_pids) == min(4, len(os.sched_getaffinity(0)))
    taken: set[int] = set()
    for _ in range(4):
        before = wait_for_all_ahead(bubblewrap)
        sandbox = bubblewrap.acquire(SandboxSpec())
        outer = parent_of(processes_in(namespace_of(sandbox))[0])
        assert outer in before - taken
        taken.add(outer)
        sandbox.close()


def test_ctrl_c_does_not_reach_the_spawner(bubblewrap: BubblewrapBackend) -> None:
    assert os.getpgid(bubblewrap.spawner_pid) != os.getpgid(0)
    assert os.getsid(bubblewrap.spawner_pid) != os.getsid(0)


def test_lower_layers_are_shared_and_bounded(bubblewrap: BubblewrapBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandboxes.lower.IDLE_KEPT", 3)
    folder = bubblewrap.lowers.shelf.path
    spec = SandboxSpec(files={"a": b"same"})
    group = [bubblewrap.acquire(spec) for _ in range(8)]
    assert len(list(folder.iterdir())) == 2  # this one, and the empty one of the opening
    for number in range(10):
        bubblewrap.acquire(SandboxSpec(files={"a": b"%d" % number})).close()
    assert len(list(folder.iterdir())) == 4
    assert all(sandbox.read("a") == b"same" for sandbox in group)
    for sandbox in group:
        sandbox.close()
    assert len(list(folder.iterdir())) == 3


def test_eight_threads(backend: Backend) -> None:
    count = 12 if backend.name == "docker" else 64  # a container costs a hundred times as much
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: live(backend, number), range(count)))


def test_close_from_another_thread_ends_a_running_command(bubblewrap: BubblewrapBackend) -> None:
    sandbox = bubblewrap.acquire(SandboxSpec())
    namespace = namespace_of(sandbox)
    started, caught = threading.Event(), []

    def run() -> None:
        started.set()
        try:
            sandbox.exec(["sleep", "60"], deadline_s=60)
        except SandboxError as wrong:
            caught.append(wrong.kind)

    thread = threading.Thread(target=run)
    thread.start()
    started.wait()
    sandbox.close()
    assert processes_in(namespace) == []
    thread.join(10)
    assert caught == ["sandbox_closed"]


@pytest.mark.parametrize("killed", [0, -1])
def test_a_killed_spawner_breaks_its_sandboxes_and_the_next_acquire_starts_another(
        killed: int, bubblewrap: BubblewrapBackend) -> None:
    """Whichever of its processes is killed, none is left."""
    sandbox = bubblewrap.acquire(SandboxSpec())
    pids = [*bubblewrap.spawner_pids, *processes_in(namespace_of(sandbox))]
    os.kill(bubblewrap.spawner_pids[killed], signal.SIGKILL)
    wait_for_end(pids)
    with pytest.raises(SandboxError) as caught:
        sandbox.exec(["true"])
    assert caught.value.kind == "sandbox_broken"
    sandbox.close()
    again = bubblewrap.acquire(SandboxSpec(files={"a": b"x"}))
    assert again.exec(["cat", "a"]).stdout == b"x"
    again.close()
    token = bubblewrap.folder.token
    bubblewrap.close()
    assert cgroups_of(token) == []


OWNER = """
import sys, threading
from pathlib import Path
from artifacts.store import DirectoryStore
from sandboxes import open_backend
from sandboxes.sandbox import SandboxSpec
from schemas.settings import Settings
from tests.sandboxes.host import namespace_of
import json
home = Path(sys.argv[1])
backend = open_backend(Settings(home=str(home), sandbox_backend=sys.argv[2]), DirectoryStore(home / "artifacts"))
sandboxes = [backend.acquire(SandboxSpec(files={"a": b"x"})) for _ in range(3)]
spaces = [namespace_of(one) for one in sandboxes]
for one in sandboxes:
    run = ["sh", "-c", "setsid sleep 600 & sleep 600"]
    threading.Thread(target=one.exec, args=(run,), kwargs={"deadline_s": 600}).start()
print(json.dumps({"token": backend.folder.token, "spawner": getattr(backend, "spawner_pid", 0), "spaces": spaces}))
sys.stdout.flush()
threading.Event().wait()
"""


def start_owner(home: Path, backend: str) -> tuple[subprocess.Popen[bytes], dict[str, object]]:
    home.mkdir(exist_ok=True)
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(home), backend], stdout=subprocess.PIPE, cwd=REPOSITORY,
                             stderr=subprocess.DEVNULL)
    assert owner.stdout
    line = owner.stdout.readline()
    assert line, "the owner did not start"
    return owner, json.loads(line)


def test_kill_9_of_an_owner_leaves_no_process_and_no_mount(tmp_path: Path, artifacts: DirectoryStore) -> None:
    open_here("bubblewrap", tmp_path / "probe", artifacts).close()
    before = mounts_of()
    home = tmp_path / "home"
    owner, said = start_owner(home, "bubblewrap")
    root, token, spawner = home / "sandboxes", str(said["token"]), int(str(said["spawner"]))
    assert reaper.reap(root) == 0 and (root / token).is_dir()
    inside = [pid for space in said["spaces"] for pid in processes_in(space)]  # type: ignore[attr-defined]
    assert len(inside) >= 3
    helpers = members_of(os.getpgid(spawner))
    owner.kill()
    owner.communicate()
    wait_for_end([*helpers, *inside])
    assert mounts_of() == before
    assert reaper.reap(root) == 1
    assert list(root.iterdir()) == [] and cgroups_of(token) == []
    assert reaper.reap(root) == 0


def test_kill_9_of_owner_and_spawner_together(tmp_path: Path, artifacts: DirectoryStore) -> None:
    open_here("bubblewrap", tmp_path / "probe", artifacts).close()
    before = mounts_of()
    home = tmp_path / "home"
    owner, said = start_owner(home, "bubblewrap")
    inside = [pid for space in said["spaces"] for pid in processes_in(space)]  # type: ignore[attr-defined]
    spawner = int(str(said["spawner"]))
    helpers = members_of(os.getpgid(spawner))
    os.kill(spawner, signal.SIGKILL)
    owner.kill()
    owner.communicate()
    wait_for_end([*helpers, *inside])
    assert mounts_of() == before
    opened = open_here("bubblewrap", home, artifacts)  # opening reaps
    assert [path.name for path in (home / "sandboxes").iterdir()] == [opened.folder.token]  # type: ignore[attr-defined]
    assert cgroups_of(str(said["token"])) == []
    opened.close()


def test_the_reaper_leaves_the_living_alone(backend: Backend, tmp_path: Path, artifacts: DirectoryStore) -> None:
    sandbox = backend.acquire(SandboxSpec(files={"a": b"x"}))
    other = open_here(backend.name, tmp_path / "home", artifacts)
    assert other.reap() == backend.reap() == 0
    assert sandbox.exec(["cat", "a"]).stdout == b"x"
    other.close()
    assert sandbox.read("a") == b"x"
    sandbox.close()


def test_the_reaper_takes_folders_of_dead_process_owners(tmp_path: Path) -> None:
    home = tmp_path / "home"
    owner, said = start_owner(home, "process")
    folder = home / "sandboxes" / str(said["token"])
    assert reaper.reap(home / "sandboxes") == 0 and folder.is_dir()
    owner.kill()
    owner.communicate()
    wait_for_lock(folder / reaper.LOCK)
    assert reaper.reap(home / "sandboxes") == 1 and not folder.exists()


def test_cgroups_of_dead_owners_go_even_when_their_home_is_gone(bubblewrap: BubblewrapBackend, tmp_path: Path,
                                                                artifacts: DirectoryStore) -> None:
    if bubblewrap.parents is None:
        pytest.skip("no cgroup can be made here: rlimits stand in")
    ended = subprocess.Popen(["true"])
    ended.wait()
    pid, ticks, namespace, _ = bubblewrap.folder.token.split("-")
    above = Path(bubblewrap.parents.memory).parent
    dead = [above / f"headrace-{ended.pid}-1-{namespace}-x", above / f"headrace-{pid}-{int(ticks) - 1}-{namespace}-x"]
    unknown = [above / f"headrace-{ended.pid}-1-{int(namespace) - 1}-x", above / "headrace-other"]
    alive = [above / f"headrace-{pid}-{ticks}-{namespace}-x"]
    for path in (*dead, *unknown, *alive):
        (path / "leaf").mkdir(parents=True)
    open_here("bubblewrap", tmp_path / "other-home", artifacts).close()
    left = [path.exists() for path in (*dead, *unknown, *alive)]
    for path in (*dead, *unknown, *alive):
        reaper.remove_cgroup(path)
    assert left == [False, False, True, True, True]


def test_removing_a_folder_touches_nothing_outside(ordinary_folder: Path) -> None:
    outside = ordinary_folder / "outside"
    outside.mkdir()
    (outside / "file").write_text("kept")
    (outside / "file").chmod(0o400)
    outside.chmod(0o500)
    doomed = ordinary_folder / "doomed"
    (doomed / "in").mkdir(parents=True)
    (doomed / "in" / "folder-link").symlink_to(outside)
    (doomed / "in" / "file-link").symlink_to(outside / "file")
    (doomed / "in").chmod(0)
    reaper.remove_tree(doomed)
    assert not doomed.exists()
    assert (outside / "file").read_text() == "kept" and outside.stat().st_mode & 0o777 == 0o500
    assert (outside / "file").stat().st_mode & 0o777 == 0o400
    outside.chmod(0o700)


def test_a_sandbox_that_is_given_up_while_it_starts_leaves_nothing(tmp_path: Path, artifacts: DirectoryStore) -> None:
    open_here("bubblewrap", tmp_path / "probe", artifacts).close()
    folder = reaper.OwnerFolder(tmp_path / "sandboxes")
    spawner = Spawner(folder)
    group = os.getpgid(spawner.pids[0])
    before, held = members_of(group), descriptors_of()
    for number in range(20):
        spawner.acquire({"id": str(number), "lower": str(tmp_path), "lease_s": 60, "memory_mb": 64, "pids": 16,
                         "workspace_mb": 16, "readonly": [], "aliases": [], "root": None}).close()
        # Bubblewrap, and an agent without a session yet.
        assert len(members_of(group)) <= len(before) + 2 * AHEAD * len(spawner.pids)
    assert descriptors_of() == held
    spawner.close()
    folder.remove()


BUSY = """
import sys, threading
from pathlib import Path
from artifacts.store import DirectoryStore
from sandboxes import open_backend
from sandboxes.sandbox import SandboxSpec
from schemas.settings import Settings
home = Path(sys.argv[1])
backend = open_backend(Settings(home=str(home)), DirectoryStore(home / "artifacts"))
print(backend.folder.token, backend.spawner_pid, flush=True)
def lives(number):
    for _ in range(1000000):
        backend.acquire(SandboxSpec()).close()
        if number == 0:
            print("one more", flush=True)
for number in range(4):
    threading.Thread(target=lives, args=(number,), daemon=True).start()
threading.Event().wait()
"""


@pytest.mark.parametrize("killed", ["owner", "spawner"])
def test_kill_9_while_sandboxes_start_and_end(killed: str, tmp_path: Path, artifacts: DirectoryStore) -> None:
    """Whatever moment of a start it hits: bubblewrap itself leaves a process behind when it dies at the wrong one."""
    open_here("bubblewrap", tmp_path / "probe", artifacts).close()
    for number in range(8):
        owner = subprocess.Popen([sys.executable, "-c", BUSY, str(tmp_path)], stdout=subprocess.PIPE, cwd=REPOSITORY,
                                 stderr=subprocess.DEVNULL)
        assert owner.stdout
        token, spawner = owner.stdout.readline().decode().split()
        group = os.getpgid(int(spawner))
        for _ in range(1 + number % 3):
            assert owner.stdout.readline()
        os.kill(owner.pid if killed == "owner" else int(spawner), signal.SIGKILL)
        wait_for_end(members_of(group), deadline_s=10)
        owner.kill()
        owner.communicate()
        wait_for_end(members_of(group), deadline_s=10)
        assert cgroups_of(token) == []
        wait_for_lock(tmp_path / "sandboxes" / token / reaper.LOCK)  # a spawner that replaced the killed one has it too
    assert reaper.reap(tmp_path / "sandboxes") == 1  # each owner reaped the one before
    assert list((tmp_path / "sandboxes").iterdir()) == []
