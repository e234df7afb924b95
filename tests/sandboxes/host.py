"""What the host sees of sandboxes: processes by pid namespace, mounts, cgroups, descriptors."""

from __future__ import annotations

import fcntl
import os
import select
from pathlib import Path

from sandboxes.sandbox import Sandbox

CGROUPS = Path("/sys/fs/cgroup")


def namespace_of(sandbox: Sandbox) -> str:
    return sandbox.exec(["readlink", "/proc/self/ns/pid"]).stdout.decode().strip()


def processes_in(namespace: str) -> list[int]:
    """Host pids of all processes in a pid namespace, the dead that nobody has reaped too."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                inside = os.readlink(entry / "ns" / "pid") == namespace
            except OSError:
                continue
            if inside:
                found.append(int(entry.name))
    return found


def parent_of(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("PPid:"))


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_for_end(pids: list[int], deadline_s: float = 20.0) -> None:
    """Wait by pidfd until none of these processes is left."""
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        ended = poll.poll(deadline_s * 1000)
        os.close(descriptor)
        assert ended, f"process {pid} is still there"


def wait_for_lock(path: Path) -> None:
    """Wait until no process holds it: a child of the dead may be on its way to its `exec` still."""
    descriptor = os.open(path, os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.close(descriptor)


def mounts_of(pid: int | str = "self") -> list[str]:
    """Ours, and all where ours would be: a container engine's beside us come and go as it likes."""
    lines = Path(f"/proc/{pid}/mountinfo").read_text().splitlines()
    places = ("/proc", "/sys", "/mnt", "/media")
    return [line for line in lines if "headrace" in line or line.split()[4].startswith(places)]


def cgroups_of(token: str) -> list[Path]:
    # Other cgroups come and go meanwhile, which `os.walk` does not mind.
    return sorted(Path(folder) for folder, _, _ in os.walk(CGROUPS) if f"headrace-{token}" in folder)


def descriptors_of(pid: int | str = "self") -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def members_of(group: int) -> list[int]:
    """Host pids of a process group: a spawner and what it started that has no session of its own yet."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                inside = os.getpgid(int(entry.name)) == group
            except ProcessLookupError:
                continue
            if inside:
                found.append(int(entry.name))
    return found
