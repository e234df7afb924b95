"""Leases: an owner's folder in `home/sandboxes`, and the reaper that removes what dead owners left.

Liveness is a file lock, which the kernel drops when the last process that holds it ends: no process id can be mistaken
for a later one. Owner and spawner both hold it, so what is unlocked has no process left that could use it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from sandboxes.spawner import cgroups
from schemas.ids import new_id, now_us

LOCK = "lease"
_HALF_MADE_S = 3600.0
ROUND_S = 300.0
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """Who made an owner's folder; written for people, and for the cgroups that the reaper has to find."""

    pid: int
    started_ticks: int
    host: str
    opened_us: int
    cgroups: list[str] = []


class OwnerFolder:
    """This process's folder in the state directory, locked for as long as we live."""

    def __init__(self, root: Path) -> None:
        self.token = f"{os.getpid()}-{started_ticks(os.getpid())}-{_process_namespace()}-{new_id()[-6:]}"
        self.path = root / self.token
        root.mkdir(parents=True, exist_ok=True)
        beside = root / f".{self.token}"
        beside.mkdir(mode=0o755)
        self.lock = os.open(beside / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        self.record([])
        beside.rename(self.path)

    def record(self, cgroup_folders: list[str]) -> None:
        lease = Lease(pid=os.getpid(), started_ticks=started_ticks(os.getpid()) or 0, host=os.uname().nodename,
                      opened_us=now_us(), cgroups=cgroup_folders)
        data = msgspec.json.encode(lease)
        os.pwrite(self.lock, data, 0)
        os.ftruncate(self.lock, len(data))

    def remove(self) -> None:
        remove_tree(self.path)
        if self.lock >= 0:
            os.close(self.lock)
            self.lock = -1


def started_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None when there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(text.rpartition(")")[2].split()[19])


class Rounds:
    """Calls a reaper again and again while its owner works: what others leave behind meanwhile must not pile up."""

    def __init__(self, reap: Callable[[], object], every_s: float = ROUND_S) -> None:
        self._reap, self._every_s = reap, every_s
        self._due = time.monotonic() + every_s
        self._lock = threading.Lock()
        self._running: threading.Thread | None = None

    def tick(self) -> None:
        """Starts a round in a thread of its own if one is due. Costs nothing if not."""
        if time.monotonic() < self._due or not self._lock.acquire(blocking=False):
            return
        try:
            if time.monotonic() >= self._due and not (self._running and self._running.is_alive()):
                self._due = time.monotonic() + self._every_s
                self._running = threading.Thread(target=self._round, name="headrace-reaper", daemon=True)
                self._running.start()
        finally:
            self._lock.release()

    def close(self) -> None:
        self._due = float("inf")
        with self._lock:
            if self._running:
                self._running.join()

    def _round(self) -> None:
        with contextlib.suppress(OSError):  # a disk that fails now is tried again in the next round
            self._reap()


def reap(root: Path) -> int:
    """Remove the folders and cgroups of dead owners, never those of live ones; how many owners."""
    count = 0
    for folder in sorted(root.iterdir()) if root.is_dir() else ():
        if folder.name.startswith("."):
            count += _reap_half_made(folder)
        elif folder.is_dir():
            count += _reap_owner(folder)
    return count


def _reap_half_made(folder: Path) -> bool:
    """A folder whose owner died before it had taken its name; young ones may still be on their way."""
    try:
        if time.time() - folder.stat().st_mtime < _HALF_MADE_S:
            return False
    except FileNotFoundError:
        return False
    remove_tree(folder)
    return True


def _reap_owner(folder: Path) -> bool:
    try:
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # gone meanwhile, no owner's folder, or another user's, who will have to reap it
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for path in _recorded_cgroups(os.pread(lock, 1 << 16, 0)):
            if Path(path).name == cgroups.name_of(folder.name):
                remove_cgroup(Path(path))
        remove_tree(folder)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True


def _recorded_cgroups(data: bytes) -> list[str]:
    try:
        return msgspec.json.decode(data, type=Lease).cgroups
    except msgspec.MsgspecError:
        return []


def remove_cgroup(path: Path, deadline_s: float = 2.0) -> None:
    """Kill what is left in a cgroup and those below it, then remove them."""
    with contextlib.suppress(OSError):  # another reaper may be quicker
        for below in [child for child in path.iterdir() if child.is_dir()]:
            remove_cgroup(below, deadline_s)
    deadline = time.monotonic() + deadline_s
    while True:
        for pid in _members(path):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            path.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() > deadline:
                return
            time.sleep(0.005)


def sweep_cgroups(folders: list[str]) -> None:
    """Beside an owner's cgroups, remove those of dead owners, whose homes may be gone and never be reaped."""
    for above in {Path(folder).parent for folder in folders}:
        for path in above.glob(cgroups.name_of("*")):
            pid, ticks, namespace, *_ = [*path.name.split("-")[1:], "", ""]
            if namespace == str(_process_namespace()) and started_ticks(int(pid)) != int(ticks):
                remove_cgroup(path)


def _process_namespace() -> int:
    """Process ids mean nothing outside of it."""
    return os.stat("/proc/self/ns/pid").st_ino


def _members(path: Path) -> list[int]:
    try:
        return [int(line) for line in (path / "cgroup.procs").read_text().split()]
    except OSError:
        return []


def remove_tree(path: Path) -> None:
    """Remove a folder whatever the modes of the folders in it, and however deep they are. Follows no link."""
    with contextlib.suppress(RecursionError):
        shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        if stat.S_ISDIR(os.lstat(path).st_mode):
            path.chmod(0o700)
            _empty(os.open(path, _FOLDER))
            path.rmdir()


def _empty(folder: int) -> None:
    """Down and up again with one folder open at a time: no path is long, no stack deep. Closes the folder."""
    trail: list[tuple[str, tuple[int, int]]] = []
    todo = [_without_files(folder)]
    try:
        while trail or todo[-1]:
            found = os.fstat(folder)
            if todo[-1]:
                name = todo[-1].pop()
                os.chmod(name, 0o700, dir_fd=folder)
                below, above = os.open(name, _FOLDER, dir_fd=folder), folder
                trail.append((name, (found.st_dev, found.st_ino)))
                folder = below
                os.close(above)
                todo.append(_without_files(folder))
            else:
                above, below = os.open("..", _FOLDER, dir_fd=folder), folder
                folder = above
                os.close(below)
                name, wanted = trail.pop()
                todo.pop()
                found = os.fstat(folder)
                if (found.st_dev, found.st_ino) != wanted:  # it was moved meanwhile: what is here is not ours
                    return
                os.rmdir(name, dir_fd=folder)
    finally:
        os.close(folder)


def _without_files(folder: int) -> list[str]:
    """Remove what is no folder; the names of the folders."""
    folders = []
    for name in os.listdir(folder):
        if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            folders.append(name)
        else:
            os.unlink(name, dir_fd=folder)
    return folders


def cgroup_folders(parents: cgroups.Parents | None) -> list[str]:
    return list(dict.fromkeys((parents.memory, parents.pids))) if parents else []
