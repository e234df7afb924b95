"""What a verdict costs: tool tasks and function tasks, in fresh sandboxes, one at a time and two at once.

    python benchmarks/verification.py [--quick] [--seed S]

Run it on a quiet machine: a verdict is mostly the life of its sandboxes. The seed changes nothing.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from harness import answer, parser, scratch

from artifacts import open_store
from artifacts.store import ArtifactStore
from sandboxes import open_backend
from sandboxes.sandbox import Backend, SandboxSpec
from schemas.settings import Settings
from tasks.sets import builtin_sets
from tasks.task import Submission, SubmittedCall, Task, store_submission, store_task
from verifiers.scoring import Request, here

FUNCTION = "def one(number):\n    return number + 1\n"
CHECKED = Task(task_id="bench-check", kind="coding", set="bench", prompt="", hidden={
    "entry": "one", "reward": "all",
    "check": "def check(candidate):\n" + "".join(f"    assert candidate({n}) == {n + 1}\n" for n in range(7))})


def main() -> int:
    rounds = 3 if parser(__doc__).parse_args().quick else 9
    with scratch() as home:
        settings = Settings(home=home)
        artifacts = open_store(settings)
        backend = open_backend(settings, artifacts)
        try:
            return 0 if all(measure(artifacts, backend, rounds)) else 1
        finally:
            backend.close()


def measure(artifacts: ArtifactStore, backend: Backend, rounds: int) -> list[bool]:
    held = []
    box = next(task for task in builtin_sets()["tools"]() if task.hidden["family"] == "calc")
    tests = builtin_sets()["coding"]()[0]
    source = json.loads(tests.reference[0])["arguments"]["content"]
    kinds: list[tuple[str, Task, dict[str, str], int, float]] = [
        ("a tool task's verdict", box, {box.hidden["out"]: box.hidden["want"]}, 50, 10.0),
        ("a verdict by hidden tests", tests, {"solution.py": source}, 6, 100.0),
        ("a verdict by a check in a second sandbox", CHECKED, {"solution.py": FUNCTION}, 4, 250.0)]
    for name, task, files, count, target in kinds:
        submission = hand_in(task, files, artifacts, backend)

        def judge(_: int, submission: str = submission) -> None:
            score = here(artifacts, backend)(Request(submission=submission, episode_id="e", run_id="r"))
            assert score.reward == 1.0, score

        judge(0)
        alone = statistics.median(spent(judge, count, 1) for _ in range(rounds))
        held.append(answer(f"{name}: duration", alone * 1e3, "ms", f"<= {target:.0f}", None, rounds))
        rate = statistics.median(1 / spent(judge, count, 2) for _ in range(rounds))
        held.append(answer(f"{name}: rate of two workers", rate, "1/s", f">= {1e3 / target:.0f}", None, rounds))
    return held


def hand_in(task: Task, files: dict[str, str], artifacts: ArtifactStore, backend: Backend) -> str:
    sandbox = backend.acquire(SandboxSpec(files=task.files))
    try:
        for path, content in files.items():
            sandbox.write(path, content.encode())
        workspace = sandbox.snapshot()
    finally:
        sandbox.close()
    done = SubmittedCall(turn=0, tool="done", arguments="", status="ok", output="")
    return store_submission(Submission(
        task_id=task.task_id, task_digest=store_task(task, artifacts).digest, workspace=workspace, answer=None,
        calls=[done]), artifacts).digest


def spent(judge: Callable[[int], None], count: int, workers: int) -> float:
    """Seconds per verdict."""
    with ThreadPoolExecutor(workers) as pool:
        began = time.perf_counter()
        list(pool.map(judge, range(count)))
        return (time.perf_counter() - began) / count


if __name__ == "__main__":
    sys.exit(main())
