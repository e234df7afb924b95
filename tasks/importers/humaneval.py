"""HumanEval: one JSON object a line with a prompt, a canonical solution and a `check(candidate)`; plain or gzipped.

The check runs as it is, but apart from the candidate (see verifiers.coding). Keys that are not ours are ignored.
"""

from __future__ import annotations

import ast
import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from schemas.errors import TaskError
from tasks.scripts import PROTOCOL, TOOLS, done, write_file
from tasks.task import Task

SET = "humaneval"
PATH = "solution.py"
KEYS = ("task_id", "prompt", "entry_point", "canonical_solution", "test")
HINT = "each line of a HumanEval file is a JSON object with " + ", ".join(KEYS)


def load(path: str | Path) -> list[Task]:
    """All tasks of the file. The first line that is broken stops the import; nothing is registered by halves."""
    path = Path(path)
    tasks: dict[str, Task] = {}
    lines: dict[str, int] = {}
    for number, text in _lines(path):
        where = f"{path}:{number}"
        task = _task(_row(text, where), where)
        if task.task_id in tasks:
            raise TaskError("a task id stands there twice", where=f"{where} $.task_id", value=task.task_id,
                            hint=f"the first one is on line {lines[task.task_id]}")
        tasks[task.task_id], lines[task.task_id] = task, number
    if not tasks:
        raise TaskError("the file holds no tasks", where=str(path), hint=HINT)
    return list(tasks.values())


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8")
    except UnicodeDecodeError as wrong:
        line = wrong.object.count(b"\n", 0, wrong.start) + 1
        raise TaskError("the file is not UTF-8", where=f"{path}:{line}", value=wrong.object[wrong.start:wrong.end],
                        hint=HINT) from None
    except (OSError, EOFError, zlib.error) as wrong:
        reason = getattr(wrong, "strerror", None) or str(wrong)
        raise TaskError(f"the task file cannot be read ({reason})", where=str(path), hint=HINT) from None
    for number, row in enumerate(text.split("\n"), start=1):
        if row.strip():
            yield number, row


def _row(text: str, where: str) -> dict[str, Any]:
    try:
        row = json.loads(text)
    except (ValueError, RecursionError) as wrong:
        raise TaskError(f"the line is not JSON ({wrong})", where=where, value=text[:80], hint=HINT) from None
    if not isinstance(row, dict):
        raise TaskError("the line is not a JSON object", where=where, value=text[:80], hint=HINT)
    for key in KEYS:
        if key not in row:
            raise TaskError("a key is missing", where=f"{where} $.{key}", hint=HINT)
        if not isinstance(row[key], str) or (key != "canonical_solution" and not row[key].strip()):
            raise TaskError("the value is not a text, or is empty", where=f"{where} $.{key}", value=row[key], hint=HINT)
    return row


def _task(row: dict[str, Any], where: str) -> Task:
    if not row["entry_point"].isidentifier():
        raise TaskError("the entry point is not a name", where=f"{where} $.entry_point", value=row["entry_point"],
                        hint=HINT)
    try:
        ast.parse(row["test"])
    except (SyntaxError, ValueError, RecursionError, MemoryError) as wrong:
        raise TaskError(f"the test is not Python ({wrong})", where=f"{where} $.test", value=row["test"][:80],
                        hint=HINT) from None
    return Task(
        task_id=row["task_id"], kind="coding", set=SET, tools=TOOLS, expected_duration_s=1.0,
        prompt=f"Complete the Python function `{row['entry_point']}` and write the whole file to {PATH}:\n\n"
               f"{row['prompt']}\n\n{PROTOCOL}",
        hidden={"entry": row["entry_point"], "path": PATH, "reward": "all", "check": row["test"],
                "preamble": row["prompt"]},
        reference=[write_file(PATH, row["prompt"] + row["canonical_solution"]), done("written")])
