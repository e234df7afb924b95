"""What a sandbox costs: a life (acquire, run, dispose), a command in an open one, a snapshot; alone and by 8 threads.

One JSON line per question. Run it on a quiet machine: a life is mostly process starts.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from artifacts import open_store
from sandboxes import open_backend
from sandboxes.sandbox import Backend, SandboxSpec
from schemas.settings import Settings

SPEC = SandboxSpec(files={"notes.txt": b"one\ntwo\n", "data/table.csv": b"a,b\n1,2\n" * 100})
SCRIPT = ["/bin/sh", "-c", "echo $((6 * 7))"]
BATCH = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    rounds = 5 if parser.parse_args().quick else 25
    with tempfile.TemporaryDirectory() as home:
        settings = Settings(home=home)
        backend = open_backend(settings, open_store(settings))
        try:
            measure(backend, rounds)
        finally:
            backend.close()


def measure(backend: Backend, rounds: int) -> None:
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
    say("life of a sandbox, p50", quantile(taken["life"], 0.5), "ms", 8.0, rounds)
    say("life of a sandbox, p95", quantile(taken["life"], 0.95), "ms", None, rounds)
    say("command in an open sandbox, p50", quantile(taken["exec"], 0.5), "ms", 2.0, rounds)
    say("command in an open sandbox, p95", quantile(taken["exec"], 0.95), "ms", None, rounds)
    say("the same command without a sandbox, p50", quantile(taken["process"], 0.5), "ms", None, rounds)
    say("command in a sandbox against one without", quantile(taken["exec"], 0.5) / quantile(taken["process"], 0.5), "x",
        None, rounds, against="subprocess.run")
    say("acquire and close, p50", quantile(taken["acquire"], 0.5), "ms", None, rounds)
    say("snapshot of an unchanged small workspace, p50", quantile(taken["snapshot"], 0.5), "ms", 3.0, rounds)
    say("lives a second, 8 threads", statistics.median(taken["threads"]), "1/s", None, rounds)
    say("processor time of a life, all processes", statistics.median(taken["cpu"]), "ms", None, rounds)


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


def quantile(values: list[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


def say(question: str, value: float, unit: str, target: float | None, rounds: int, against: str | None = None) -> None:
    print(json.dumps({"question": question, "value": round(value, 3), "unit": unit, "target": target,
                      "holds": None if target is None else value <= target, "against": against, "rounds": rounds}))


if __name__ == "__main__":
    main()
