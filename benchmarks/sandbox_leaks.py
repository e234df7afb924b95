"""What lives leave behind, in threads side by side: mounts, cgroups, processes, descriptors, files, disk, memory.

    python benchmarks/sandbox_leaks.py [--quick]

10,000 lives, with --quick 300. Each writes a file, reads it in another command, takes a snapshot and leaves a process
behind; one in ten has a session, one in ten is over its deadline, one in ten cannot be started at all.
"""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness import answer, parser, scratch

from artifacts import open_store
from sandboxes.bubblewrap import BubblewrapBackend
from sandboxes.opening import open_named
from sandboxes.sandbox import Backend, SandboxSpec
from schemas.errors import SandboxError
from schemas.settings import Settings

THREADS = 8
SLACK = {"memory, MiB": 24, "helpers' memory, MiB": 8}
"""What may have grown: sandboxes that a helper has started ahead have up to `_AHEAD` of each."""
_AHEAD = 20
_PART = 200


def main() -> int:
    lives = 300 if parser(__doc__).parse_args().quick else 10_000
    with scratch() as home:
        settings = Settings(home=home)
        backend = open_named("bubblewrap", Path(home) / "sandboxes", open_store(settings))
        assert isinstance(backend, BubblewrapBackend)
        try:
            return 0 if measure(backend, lives) else 1
        finally:
            backend.close()


def measure(backend: BubblewrapBackend, lives: int) -> bool:
    run(backend, 5 * THREADS)
    before, began = counts(backend), time.monotonic()
    failed = run(backend, lives)
    taken_s, after = time.monotonic() - began, counts(backend)
    grown = {name: after[name] - before[name] for name in after}
    leaked = [name for name, more in grown.items() if more > SLACK.get(name, _AHEAD * len(backend.spawner_pids))]
    told = ", ".join(f"{name} {more:+d}" for name, more in grown.items() if more) or "nothing has grown"
    held = answer(f"things leaked by {lives} lives", len(leaked), "kinds", "<= 0", told)
    held &= answer(f"lives of {lives} that failed", failed, "lives", "<= 0", f"{lives / taken_s:.0f} lives a second")
    return held


def run(backend: Backend, lives: int) -> int:
    with ThreadPoolExecutor(THREADS) as pool:  # in parts: what waits to be run takes memory too
        return sum(sum(pool.map(lambda number: not life(backend, number), range(start, min(start + _PART, lives))))
                   for start in range(0, lives, _PART))


def life(backend: Backend, number: int) -> bool:
    kind = number % 10
    if kind == 3:
        try:
            backend.acquire(SandboxSpec(readonly={"/a/b": Path("/dev/null"), "/a/b/c": Path("/dev/null")})).close()
        except SandboxError:
            return True
        return False
    sandbox = backend.acquire(SandboxSpec(files={"n": b"%d" % (number % 50)}))
    try:
        if kind == 5:
            return sandbox.exec(["sleep", "60"], deadline_s=0.01).timed_out
        if kind == 7:
            sandbox.session("shell").run("sleep 60 & cd /tmp")
        said = sandbox.exec(["sh", "-c", "cat n > m; (setsid sleep 60 &) ; head -c 100000 /dev/zero > /tmp/big"])
        sandbox.snapshot()
        return said.exit_code == 0 and sandbox.read("m") == b"%d" % (number % 50)
    finally:
        sandbox.close()


def counts(backend: BubblewrapBackend) -> dict[str, int]:
    pids, home = backend.spawner_pids, backend.root.parent
    folders = {backend.parents.memory, backend.parents.pids} if backend.parents else set()
    files = [path for path in home.rglob("*") if path.is_file()]
    return {
        "mounts of the host": len([line for line in lines("/proc/self/mountinfo") if "headrace" in line]),
        "mounts of the helpers": sum(len(lines(f"/proc/{pid}/mountinfo")) for pid in pids),
        "cgroups": sum(len(list(Path(folder).glob("*/"))) for folder in folders),
        "processes": sum(group_of(entry.name) == os.getpgid(pids[0]) for entry in os.scandir("/proc")),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "helpers' descriptors": sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids),
        "files": len(files), "disk, KiB": sum(path.stat().st_size for path in files) >> 10,
        "files in the helpers' memory": len(list(backend.lowers.shelf.path.rglob("*"))),
        "memory, MiB": resident(os.getpid()), "helpers' memory, MiB": sum(map(resident, pids))}


def group_of(name: str) -> int:
    try:
        return os.getpgid(int(name))
    except (ValueError, ProcessLookupError):
        return -1


def resident(pid: int) -> int:
    return next(int(line.split()[1]) for line in lines(f"/proc/{pid}/status") if line.startswith("VmRSS:")) >> 10


def lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()


if __name__ == "__main__":
    sys.exit(main())
