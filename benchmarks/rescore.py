"""Stored submissions of functions, scored again: verdicts a second of two processes, beside plain pytest per sample.

    python benchmarks/rescore.py [--quick] [--seed S]

1,000 submissions (right, partly right and wrong answers to the built-in tasks), no cache of verdicts, no model. What
sandboxes cost of it is told apart. Plain pytest runs the same calls of the same tasks in a process per sample, two at
a time, isolated from nothing. The seed changes nothing.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness import answer, interleaved, parser, ratio, scratch, timed
from verification import hand_in

from artifacts import open_store
from sandboxes import open_backend
from sandboxes.sandbox import Backend, SandboxSpec
from schemas.settings import Settings
from tasks.coding import coding_tasks
from tasks.coding_problems import PROBLEMS
from tasks.task import Task
from verifiers.judges import Judges
from verifiers.scoring import Request

WORKERS = 2
Sample = tuple[str, int, str]
"""A submission's digest, the number of its problem, its source."""


def main() -> int:
    quick = parser(__doc__).parse_args().quick
    count, plain, rounds = (100, 10, 1) if quick else (1000, 60, 3)
    with scratch() as home:
        settings = Settings(home=home)
        artifacts = open_store(settings)
        backend = open_backend(settings, artifacts)
        try:
            tasks = coding_tasks()
            kinds = [(hand_in(task, {"solution.py": source}, artifacts, backend), number, source)
                     for number, task in enumerate(tasks) for source in _sources(task)]
            samples = [kinds[number % len(kinds)] for number in range(count)]
            with Judges(settings, artifacts, WORKERS, cached=False) as judges:
                _rescored(judges, samples[:WORKERS * 2])
                rates = interleaved(rounds, {
                    "ours": lambda: count / timed(lambda: _rescored(judges, samples)),
                    "pytest": lambda: plain / timed(lambda: _pytested(samples[:plain])),
                    "sandboxes": lambda: _lives(backend, count // 10)})
        finally:
            backend.close()
    held = answer("stored submissions of functions scored again by two processes", statistics.median(rates["ours"]),
                  "1/s", ">= 30", None, rounds)
    answer("plain pytest, a process per sample, two at once", statistics.median(rates["pytest"]), "1/s", None, None,
           rounds)
    answer("scoring again against plain pytest per sample", ratio(rates["ours"], rates["pytest"]), "x", None,
           "pytest in a process per sample, not isolated", rounds)
    answer("a sandbox of a verdict: acquire, one command, close", statistics.median(rates["sandboxes"]) * 1e3, "ms",
           None, None, rounds)
    return 0 if held else 1


def _sources(task: Task) -> list[str]:
    scripts = [task.reference, *task.variants.values()]
    return [json.loads(script[0])["arguments"]["content"] for script in scripts]


def _rescored(judges: Judges, samples: list[Sample]) -> None:
    def score(sample: Sample) -> None:
        scored = judges.score(Request(submission=sample[0], episode_id="e", run_id="r"))
        assert scored.reward is not None, scored

    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(score, samples))


def _pytested(samples: list[Sample]) -> None:
    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(_pytest, samples))


def _pytest(sample: Sample) -> None:
    _, number, source = sample
    problem = PROBLEMS[number]
    test = "\n".join([
        f"import pytest\nfrom solution import {problem.entry}\n\n",
        f"@pytest.mark.parametrize(('arguments', 'want'), {problem.tests!r})",
        f"def test(arguments, want):\n    assert {problem.entry}(*arguments) == want\n"])
    with tempfile.TemporaryDirectory(prefix="headrace-benchmark-") as folder:
        (Path(folder) / "solution.py").write_text(source)
        (Path(folder) / "test_solution.py").write_text(test)
        subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_solution.py"], cwd=folder,
                       env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}, check=False, capture_output=True)


def _lives(backend: Backend, count: int) -> float:
    """Seconds of one sandbox's life with the start of an interpreter that does nothing."""
    began = time.perf_counter()
    for _ in range(count):
        sandbox = backend.acquire(SandboxSpec())
        sandbox.exec(["python3", "-S", "-c", ""])
        sandbox.close()
    return (time.perf_counter() - began) / count


if __name__ == "__main__":
    sys.exit(main())
