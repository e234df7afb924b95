"""Stored submissions of functions, scored again: verdicts a second of two processes, beside plain pytest per sample.

    python benchmarks/rescore.py [--quick] [--seed S]

1,000 submissions, no two alike (right, partly right and wrong answers to the built-in tasks), no cache of verdicts, no
model. What sandboxes cost of it is told apart, in processor time too, which says the same on a busy machine. Plain
pytest runs the same calls of the same tasks in a process per sample, two at a time, isolated from nothing. The seed
changes nothing.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness import answer, interleaved, parser, ratio, scratch, timed
from verification import hand_in

from artifacts import open_store
from artifacts.store import ArtifactStore
from sandboxes import open_backend
from sandboxes.sandbox import Backend, SandboxSpec
from schemas.settings import Settings
from tasks.coding import coding_tasks
from tasks.coding_problems import PROBLEMS
from tasks.task import Task
from verifiers.judges import Judges
from verifiers.scoring import Request, here

WORKERS = 2
Sample = tuple[str, int, str]
"""A submission's digest, the number of its problem, its source."""


def main() -> int:
    quick = parser(__doc__).parse_args().quick
    count, plain, alone, rounds = (100, 10, 40, 1) if quick else (1000, 60, 200, 3)
    with scratch() as home:
        settings = Settings(home=home)
        artifacts = open_store(settings)
        backend = open_backend(settings, artifacts)
        try:
            samples = _samples(count, artifacts, backend)
            with Judges(settings, artifacts, WORKERS, cached=False) as judges:
                _rescored(judges, samples[:WORKERS * 2])
                rates = interleaved(rounds, {
                    "ours": lambda: count / timed(lambda: _rescored(judges, samples)),
                    "pytest": lambda: plain / timed(lambda: _pytested(samples[:plain])),
                    "sandbox": lambda: timed(lambda: [_life(backend) for _ in range(alone)]) / alone,
                    "verdict's processor time": lambda: _processor_s(settings, artifacts, samples[:alone], _verdict),
                    "sandbox's processor time": lambda: _processor_s(settings, artifacts, samples[:alone], _life)})
        finally:
            backend.close()
    held = answer("stored submissions of functions scored again by two processes", statistics.median(rates["ours"]),
                  "1/s", ">= 30", None, rounds)
    answer("plain pytest, a process per sample, two at once", statistics.median(rates["pytest"]), "1/s", None, None,
           rounds)
    answer("scoring again against plain pytest per sample", ratio(rates["ours"], rates["pytest"]), "x", None,
           "pytest in a process per sample, not isolated", rounds)
    answer("a sandbox of a verdict: acquire, start of an interpreter, close", statistics.median(rates["sandbox"]) * 1e3,
           "ms", None, None, rounds)
    used = statistics.median(rates["verdict's processor time"])
    answer("processor time of a verdict, its sandbox and all its processes", used * 1e3, "ms", None, None, rounds)
    lean = answer("processor time of a verdict against its sandbox and one start of an interpreter",
                  ratio(rates["verdict's processor time"], rates["sandbox's processor time"]), "x", "<= 3",
                  "acquire, start of an interpreter, close", rounds)
    return 0 if held and lean else 1


def _samples(count: int, artifacts: ArtifactStore, backend: Backend) -> list[Sample]:
    tasks = coding_tasks()
    kinds = [(number, source) for number, task in enumerate(tasks) for source in _sources(task)]
    found = []
    for sample in range(count):
        number, source = kinds[sample % len(kinds)]
        source = f"{source}\n# Sample {sample}.\n"
        found.append((hand_in(tasks[number], {"solution.py": source}, artifacts, backend), number, source))
    return found


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


def _life(backend: Backend, *_: object) -> None:
    """One sandbox's life with the start of an interpreter that does nothing."""
    sandbox = backend.acquire(SandboxSpec())
    sandbox.exec(["python3", "-S", "-c", ""])
    sandbox.close()


def _verdict(backend: Backend, artifacts: ArtifactStore, sample: Sample) -> None:
    assert here(artifacts, backend)(Request(submission=sample[0], episode_id="e", run_id="r")).reward is not None


def _processor_s(settings: Settings, artifacts: ArtifactStore, samples: list[Sample],
                 action: Callable[[Backend, ArtifactStore, Sample], None]) -> float:
    """Processor time of one action, by every process that it starts: all of a backend's are waited for at its end."""
    def used(some: list[Sample]) -> float:
        before = _used_s()
        backend = open_backend(settings, artifacts)
        for sample in some:
            action(backend, artifacts, sample)
        backend.close()
        return _used_s() - before

    nothing = used([])
    return (used(samples) - nothing) / len(samples)


def _used_s() -> float:
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(used.ru_utime + used.ru_stime for used in both)


if __name__ == "__main__":
    sys.exit(main())
