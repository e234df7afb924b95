"""What was done to the seed of a repository that a reader would object to: seen before any of it runs.

Files that take test runs over have no effect on a verdict, and edited tests have none: both are told. Findings are
those of changed files that were not there before. A workspace that cannot be read through in time is told, and judged
by its tests.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from sandboxes.sandbox import Sandbox
from schemas.ids import digest
from tasks.task import Task
from verifiers import repository_look
from verifiers.findings import new_findings
from verifiers.program import ENVIRONMENT, command
from verifiers.signs import signs_in

LOOK = ("verifiers.values", "verifiers.signs", "verifiers.candidate_runner", "verifiers.repository_look")
_LOOK_S = 20.0


class Review(NamedTuple):
    tampering: list[str]
    broken: list[str]
    """Changed files that do not compile."""
    new: list[str]
    error: str | None = None

    def evidence(self) -> dict[str, Any]:
        return {"broken": self.broken, "new_findings": len(self.new), "findings": self.new[:50],
                **({"error": self.error} if self.error else {})}


def review(sandbox: Sandbox, task: Task, tests: Iterable[str], left_s: float) -> Review:
    seed = {name: digest(data) for name, data in task.files.items()}
    said = sandbox.exec(command(*LOOK), environment=ENVIRONMENT, deadline_s=max(1.0, min(_LOOK_S, left_s)),
                        stdin=json.dumps({"seed": seed, "tests": sorted(tests)}).encode())
    if said.exit_code != 0:
        why = "too large to be read in time" if said.timed_out else "it cannot be read through"
        return Review([], [], [], f"the workspace: {why}")
    found: dict[str, Any] = json.loads(said.stdout)
    told = [*(f"takes test runs over: {name}" for name in found["takers"]),
            *(f"a test file was changed: {name}" for name in found["tests"]),
            *(f"{name} {sign}" for name, signs in sorted(found["signs"].items())
              for sign in signs if sign not in signs_in(task.files.get(name, b"")))]
    return Review(told, found["broken"], _new(task.files, found["findings"]))


def _new(seed: Mapping[str, bytes], after: Mapping[str, list[str]]) -> list[str]:
    """Findings of each changed file that it did not have."""
    return [f"{name}:{finding}" for name, found in sorted(after.items())
            for finding in new_findings(repository_look.findings(name, seed.get(name, b"")), found)]


def history_of(files: Iterable[str]) -> str | None:
    """A path of git's own among these, or the workspace itself as a bare repository: what comes later may be in its
    objects. A bare repository further down is data of the tests."""
    tops = set()
    for name in files:
        parts = PurePosixPath(name).parts
        if ".git" in parts:
            return name
        tops.add(parts[0])
    return "objects" if {"objects", "refs", "HEAD"} <= tops else None
