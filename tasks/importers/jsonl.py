"""Tasks in our own form: one JSON object a line with the fields of `tasks.task.Task`.

`set` is the file's name where it is missing. Files of the workspace are texts, or `{"base64": "..."}` for bytes.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from pathlib import Path
from typing import Any

import msgspec

from schemas.errors import TaskError
from tasks.importers.reading import rows, text_of
from tasks.task import Task

HINT = "each line is a JSON object with task_id, kind and prompt, and any other field of a task: docs/extending.md"
_FILES, _REQUIRED = "files", ("task_id", "kind", "prompt")


def load(path: str | Path) -> list[Task]:
    """All tasks of the file. The first line that is broken stops the import; nothing is registered by halves."""
    path = Path(path)
    tasks: dict[str, Task] = {}
    for where, row in rows(path, HINT):
        task = _task(row, path.name.split(".")[0], where)
        if task.task_id in tasks:
            raise TaskError("a task id stands there twice", where=f"{where} $.task_id", value=task.task_id, hint=HINT)
        tasks[task.task_id] = task
    if not tasks:
        raise TaskError("the file holds no tasks", where=str(path), hint=HINT)
    return list(tasks.values())


def _task(row: dict[str, Any], set_name: str, where: str) -> Task:
    for key in _REQUIRED:
        text_of(row, key, where, HINT)
    files = row.get(_FILES, {})
    if not isinstance(files, dict):
        raise TaskError("files are not an object of path to content", where=f"{where} $.files", value=files, hint=HINT)
    content = {name: _bytes(held, f"{where} $.files[{name!r}]") for name, held in files.items()}
    try:
        return msgspec.convert({"set": set_name, **row, _FILES: content}, Task)
    except msgspec.ValidationError as wrong:
        raise TaskError(f"the task is wrong: {wrong}", where=where, hint=HINT) from None


def _bytes(held: Any, where: str) -> bytes:
    if isinstance(held, str):
        return held.encode()
    if isinstance(held, dict) and held.keys() == {"base64"} and isinstance(held["base64"], str):
        try:
            return b64decode(held["base64"], validate=True)
        except (binascii.Error, ValueError) as wrong:
            raise TaskError(f"not base64 ({wrong})", where=where, value=held["base64"][:80], hint=HINT) from None
    raise TaskError("the content is neither a text nor {\"base64\": \"...\"}", where=where, value=held, hint=HINT)
