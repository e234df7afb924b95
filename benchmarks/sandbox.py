"""What a sandbox costs: a life (acquire, run, dispose), a command in an open one, a snapshot; alone and by 8 threads.

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
from sandboxes import open_backend
from sandboxes.sandbox import Backend, SandboxSpec
from schemas.settings import Settings

SPEC = SandboxSpec(files={"notes.txt": b"one\ntwo\n", "data/table.csv": b"a,b\n1,2\n" * 100})
SCRIPT = ["/bin/sh", "-c", "echo $((6 * 7))"]
BATCH = 20


def main() -> int:
    rounds = 5 if parser(__doc__).parse_args().quick else 25
    with scratch() as home:
        settings = Settings(home=home)
        backend = open_backend(settings, open_store(settings))
        try:
            return 0 if all(measure(backend, rounds)) else 1
        finally:
            backend.close()


def measure(backend: Backend, rounds: int) -> list[bool]:
    """All rounds interleaved, so that every question meets the same machine."""
    opened = backend.acquire(SPEC)
    taken: dict[str, list[float]] = {}
    questions: dict[str, Callable[[], object]] = {
        "life": lambda: life(backend), "exec": lambda: opened.exec(SCRIPT), "snapshot": opened.snapshot,
        "acquire": lambda: backend.acquire(SPEC).close(),
        "process": lambda: subprocess.run(SCRIPT, check=True, capture_output=True)}
    for _ in range(rounds):
        for name, action in questions.items():
            taken.setdefault(name, []).extend(timed(action) for _ in range(BATCH))
        taken.setdefault("threads", []).append(threaded(backend))
        taken.setdefault("cpu", []).append(processor_time(backend))
    opened.close()
    p50 = {name: quantile(values, 0.5) for name, values in taken.items()}
    bare = f"subprocess.run: p50 {p50['process']:.2f} ms"

    def tail(name: str) -> str:
        return f"p95 {quantile(taken[name], 0.95):.2f} ms"

    return [
        answer("life of a sandbox, p50", p50["life"], "ms", "<= 8", tail("life"), rounds),
        answer("command in an open sandbox, p50", p50["exec"], "ms", "<= 2", tail("exec"), rounds),
        answer("command in a sandbox against one without", p50["exec"] / p50["process"], "x", None, bare, rounds),
        answer("acquire and close, p50", p50["acquire"], "ms", None, tail("acquire"), rounds),
        answer("snapshot of an unchanged workspace, p50", p50["snapshot"], "ms", "<= 3", tail("snapshot"), rounds),
        answer("lives a second, 8 threads", statistics.median(taken["threads"]), "1/s", None, None, rounds),
        answer("processor time of a life, all processes", statistics.median(taken["cpu"]), "ms", None, None, rounds)]


def life(backend: Backend) -> None:
    sandbox = backend.acquire(SPEC)
    result = sandbox.exec(SCRIPT)
    assert result.stdout == b"42\n", result
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
    """Ours, the helper process's and that of all processes it has waited for."""
    before = _processor_time(backend)
    for _ in range(2 * BATCH):
        life(backend)
    return (_processor_time(backend) - before) * 1000 / (2 * BATCH)


def _processor_time(backend: Backend) -> float:
    pid = getattr(backend, "spawner_pid", 0)
    with open(f"/proc/{pid}/stat") as file:
        ticks = sum(map(int, file.read().rpartition(")")[2].split()[11:15]))
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())
