"""Small Python functions to write, each judged by hidden calls whose wanted values never enter a sandbox.

Every problem has a reference that passes all tests, a partly right version and a wrong one.
"""

from __future__ import annotations

from typing import Any

from tasks.coding_problems import PROBLEMS, Problem
from tasks.scripts import PROTOCOL, TOOLS, done, run, write_file
from tasks.task import Task

PATH = "solution.py"


def coding_tasks() -> list[Task]:
    return [_task(problem) for problem in PROBLEMS]


def _task(problem: Problem) -> Task:
    return Task(
        task_id=f"coding-{problem.entry.replace('_', '-')}", kind="coding", set="coding",
        prompt=f"Write {PATH} with the Python function `{problem.signature}`.\n{problem.statement}\n\n{PROTOCOL}",
        tools=TOOLS, difficulty=problem.difficulty, expected_duration_s=1.0,
        hidden={"entry": problem.entry, "path": PATH, "reward": "rate",
                "tests": [_test(arguments, want) for arguments, want in problem.tests]},
        reference=_turns(problem.reference, check=True),
        variants={"wrong": _turns(problem.wrong), "partial": _turns(problem.partial)})


def _test(arguments: tuple[Any, ...], want: Any) -> dict[str, Any]:
    return {"args": [encoded(argument) for argument in arguments], "want": encoded(want)}


def encoded(value: Any) -> Any:
    """The tagged form that `verifiers.values` reads, for the types that the problems here use."""
    if isinstance(value, list):
        return [encoded(item) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [encoded(item) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[encoded(key), encoded(item)] for key, item in value.items()]}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"no encoded form for a {type(value).__name__}")


def _turns(source: str, check: bool = False) -> list[str]:
    turns = [write_file(PATH, source)]
    if check:
        turns.append(run(f"python3 -m py_compile {PATH} && rm -rf __pycache__"))
    return [*turns, done("written")]
