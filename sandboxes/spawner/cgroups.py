"""Memory and process limits by cgroup, version 1 or 2, where we may make one; rlimits stand in elsewhere."""

from __future__ import annotations

import contextlib
import os
from typing import NamedTuple

ROOT = "/sys/fs/cgroup"


class Parents(NamedTuple):
    """Where an owner's cgroups hang: `memory` and `pids` are one folder in version 2."""

    version: int
    memory: str
    pids: str


def name_of(token: str) -> str:
    return f"headrace-{token}"


def make_parents(token: str, root: str = ROOT) -> Parents | None:
    """The owner's own cgroup `headrace-<token>`, made if need be; None where cgroups cannot be made."""
    name = name_of(token)
    try:
        if os.path.exists(f"{root}/cgroup.controllers"):
            return _make_v2(f"{root}/{name}", root)
        return _make_v1(name, root)
    except OSError:
        return None


def _make_v2(path: str, root: str) -> Parents | None:
    with open(f"{root}/cgroup.controllers") as file:
        if not {"memory", "pids"} <= set(file.read().split()):
            return None
    with open(f"{root}/cgroup.subtree_control", "w") as file:
        file.write("+memory +pids")
    _make_below_cgroup(path)
    try:
        with open(f"{path}/cgroup.subtree_control", "w") as file:
            file.write("+memory +pids")
    except OSError:
        os.rmdir(path)
        raise
    return Parents(2, path, path)


def _make_v1(name: str, root: str) -> Parents:
    made = []
    try:
        for controller in ("memory", "pids"):
            path = f"{root}/{controller}{_own_v1(controller, root)}/{name}"
            _make_below_cgroup(path)
            made.append(path)
    except OSError:
        for path in made:
            os.rmdir(path)
        raise
    return Parents(1, *made)


def _make_below_cgroup(path: str) -> None:
    if not os.path.exists(f"{os.path.dirname(path)}/cgroup.procs"):
        raise FileNotFoundError(path)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path)


def _own_v1(controller: str, root: str) -> str:
    """Our own cgroup below the controller's mount, so that limits above us still hold."""
    with open("/proc/self/cgroup") as file:
        for line in file:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            if controller in controllers.split(",") and path != "/" and os.path.isdir(f"{root}/{controller}{path}"):
                return path
    return ""


def by_descriptor(parents: Parents) -> Parents:
    """The same folders by open descriptors: they stay reachable when nothing is mounted over /sys any more."""

    def held(path: str) -> str:
        return f"/proc/self/fd/{os.open(path, os.O_RDONLY | os.O_DIRECTORY)}"

    memory = held(parents.memory)
    return Parents(parents.version, memory, memory if parents.pids == parents.memory else held(parents.pids))


def make(parents: Parents, name: str) -> None:
    for folder in dict.fromkeys((parents.memory, parents.pids)):
        os.mkdir(f"{folder}/{name}")


def limit(parents: Parents, name: str, memory_mb: int, pids: int) -> None:
    memory, processes = f"{parents.memory}/{name}", f"{parents.pids}/{name}"
    size = str(memory_mb << 20)
    if parents.version == 2:
        _write(f"{memory}/memory.max", size)
        _write_if_there(f"{memory}/memory.swap.max", "0")
        _write_if_there(f"{memory}/memory.oom.group", "0")
    else:
        _write(f"{memory}/memory.limit_in_bytes", size)
        _write_if_there(f"{memory}/memory.memsw.limit_in_bytes", size)
    _write(f"{processes}/pids.max", str(pids))


def doors(parents: Parents, name: str) -> list[int]:
    """Descriptors of files: who writes 0 to each of them has joined. Memory's first; in version 2 they are one."""
    # To move another process, or in version 2 any, the kernel waits until no process of the host forks: milliseconds.
    file = "tasks" if parents.version == 1 else "cgroup.procs"
    return [os.open(f"{folder}/{name}/{file}", os.O_WRONLY | os.O_CLOEXEC)
            for folder in dict.fromkeys((parents.memory, parents.pids))]


def remove(parents: Parents, name: str) -> None:
    for folder in dict.fromkeys((parents.memory, parents.pids)):
        with contextlib.suppress(OSError):
            os.rmdir(f"{folder}/{name}")


def remove_all(parents: Parents) -> None:
    """The owner's cgroups, when all that ran in them is dead."""
    for folder in dict.fromkeys((parents.memory, parents.pids)):
        with contextlib.suppress(OSError):
            for name in os.listdir(folder):
                if os.path.isdir(f"{folder}/{name}"):
                    os.rmdir(f"{folder}/{name}")
            os.rmdir(folder)


def oom_kills(parents: Parents, name: str) -> int:
    """How many processes of this sandbox the memory limit has killed."""
    file = "memory.events" if parents.version == 2 else "memory.oom_control"
    return _count(f"{parents.memory}/{name}/{file}", b"oom_kill ")


def refused_forks(parents: Parents, name: str) -> int:
    """How often the limit of processes has refused one."""
    return _count(f"{parents.pids}/{name}/pids.events", b"max ")


def _count(path: str, key: bytes) -> int:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        text = os.read(descriptor, 4096)
    finally:
        os.close(descriptor)
    return next((int(line[len(key):]) for line in text.splitlines() if line.startswith(key)), 0)


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _write_if_there(path: str, text: str) -> None:
    with contextlib.suppress(OSError):
        _write(path, text)
