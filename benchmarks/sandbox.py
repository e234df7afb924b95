"""What a sandbox costs: a life (acquire, run, dispose), a command or a call in an open one, a snapshot; alone and by 8
threads; beside the same command in a bare bubblewrap and in none.

    python benchmarks/sandbox.py [--quick] [--seed S]

Run it on a quiet machine: a life is mostly process starts. Nothing is drawn at random, so the seed changes nothing.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from harness import answer, parser, quantile, scratch

from artifacts import open_store
from artifacts.store import ArtifactStore
from sandboxes import open_backend, snapshot
from sandboxes.sandbox import Backend, SandboxSpec
from schemas.settings import Settings

SPEC = SandboxSpec(files={"notes.txt": b"one\ntwo\n", "data/table.csv": b"a,b\n1,2\n" * 100})
SCRIPT = ["/bin/sh", "-c", "echo $((6 * 7))"]
BARE = ["bwrap", "--unshare-all", "--unshare-user", "--dev-bind", "/", "/", "--proc", "/proc", *SCRIPT]
BATCH = 20
RESTORED_FILES = 200


def main() -> int:
    rounds = 5 if parser(__doc__).parse_args().quick else 25
    with scratch() as home:
        settings = Settings(home=home)
        artifacts = open_store(settings)
        backend = open_backend(settings, artifacts)
        try:
            return 0 if all(measure(backend, artifacts, rounds)) else 1
        finally:
            backend.close()


def measure(backend: Backend, artifacts: ArtifactStore, rounds: int) -> list[bool]:
    """All rounds interleaved, so that every question meets the same machine."""
    opened, talking = backend.acquire(SPEC), backend.acquire(SPEC)
    shell = talking.session("shell")
    taken: dict[str, list[float]] = {}
    questions: dict[str, Callable[[], object]] = {
        "life": lambda: life(backend), "exec": lambda: opened.exec(SCRIPT), "snapshot": opened.snapshot,
        "acquire": lambda: backend.acquire(SPEC).close(),
        "call": lambda: shell.run(SCRIPT[-1]), "bare": lambda: subprocess.run(BARE, check=True, capture_output=True),
        "process": lambda: subprocess.run(SCRIPT, check=True, capture_output=True)}
    for turn in range(rounds):
        for name, action in questions.items():
            taken.setdefault(name, []).extend(timed(action) for _ in range(BATCH))
        for number in range(2):
            restore(backend, artifacts, f"{turn}.{number}", taken)
        taken.setdefault("threads", []).append(threaded(backend))
        taken.setdefault("cpu", []).append(processor_time(backend))
    opened.close()
    talking.close()
    p50 = {name: quantile(values, 0.5) for name, values in taken.items()}
    busy = [rate * cpu / 1000 / (os.cpu_count() or 1) for rate, cpu in zip(taken["threads"], taken["cpu"], strict=True)]
    alone = f"subprocess.run: p50 {p50['process']:.2f} ms"
    bare = f"bwrap with the same command: p50 {p50['bare']:.2f} ms"

    def tail(name: str) -> str:
        return f"p95 {quantile(taken[name], 0.95):.2f} ms"

    return [
        answer("life of a sandbox, p50", p50["life"], "ms", "<= 6", tail("life"), rounds),
        answer("command in an open sandbox, p50", p50["exec"], "ms", "<= 2", tail("exec"), rounds),
        answer("command in a sandbox against one without", p50["exec"] / p50["process"], "x", None, alone, rounds),
        answer("call of a persistent shell, p50", p50["call"], "ms", "<= 1", tail("call"), rounds),
        answer("life of a sandbox against a bare bubblewrap", p50["life"] / p50["bare"], "x", None, bare, rounds),
        answer("acquire and close, p50", p50["acquire"], "ms", None, tail("acquire"), rounds),
        answer("snapshot of an unchanged workspace, p50", p50["snapshot"], "ms", "<= 3", tail("snapshot"), rounds),
        answer("restore of a 200-file snapshot seen for the first time, p50", p50["restore"], "ms", "<= 15",
               tail("restore"), rounds),
        answer("another sandbox over the same snapshot, p50", p50["fork"], "ms", None, tail("fork"), rounds),
        answer("snapshot of its 200 unchanged files, p50", p50["unchanged"], "ms", None, tail("unchanged"), rounds),
        answer("lives a second, 8 threads", statistics.median(taken["threads"]), "1/s", None, None, rounds),
        answer("part of all cores that 8 threads keep busy", statistics.median(busy), "", ">= 0.7", None, rounds),
        answer("processor time of a life, all processes", statistics.median(taken["cpu"]), "ms", None, None, rounds)]


def life(backend: Backend) -> None:
    sandbox = backend.acquire(SPEC)
    result = sandbox.exec(SCRIPT)
    assert result.stdout == b"42\n", result
    sandbox.close()


def restore(backend: Backend, artifacts: ArtifactStore, mark: str, taken: dict[str, list[float]]) -> None:
    """A snapshot that no sandbox has started from yet, and then one that another has."""
    files = {f"d{n % 10}/f{n}": f"{mark} {n} ".encode() * 100 for n in range(RESTORED_FILES)}
    spec = SandboxSpec(workspace=snapshot.store_files(files, artifacts))
    for name in ("restore", "fork"):
        started = time.perf_counter()
        sandbox = backend.acquire(spec)
        taken.setdefault(name, []).append((time.perf_counter() - started) * 1000)
        if name == "fork":
            taken.setdefault("unchanged", []).append(timed(sandbox.snapshot))
        sandbox.close()


def timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return (time.perf_counter() - started) * 1000


def threaded(backend: Backend) -> float:
    with ThreadPoolExecutor(8) as pool:
        started = time.perf_counter()
        list(pool.map(lambda _: life(backend), range(4 * BATCH)))
        return 4 * BATCH / (time.perf_counter() - started)


def processor_time(backend: Backend) -> float:
    """Ours, that of the helper processes and of all processes that they have waited for."""
    before = _processor_time(backend)
    for _ in range(2 * BATCH):
        life(backend)
    return (_processor_time(backend) - before) * 1000 / (2 * BATCH)


def _processor_time(backend: Backend) -> float:
    ticks = 0
    for pid in getattr(backend, "spawner_pids", []):
        with open(f"/proc/{pid}/stat") as file:
            ticks += sum(map(int, file.read().rpartition(")")[2].split()[11:15]))
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())
