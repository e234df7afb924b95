"""GSM8K: one JSON object a line with a question and an answer, whose final number stands behind `####`.

Keys that are not ours are ignored; `id` names the task where it is there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from schemas.errors import TaskError
from tasks.importers.reading import rows, text_of
from tasks.math import task_of
from tasks.task import Task

SET = "gsm8k"
MARK = "####"
HINT = "each line of a GSM8K file is a JSON object with question and answer; the answer ends in `#### 42`"


def load(path: str | Path) -> list[Task]:
    """All tasks of the file. The first line that is broken stops the import; nothing is registered by halves."""
    path = Path(path)
    tasks: dict[str, Task] = {}
    for where, row in rows(path, HINT):
        question, answer = text_of(row, "question", where, HINT), text_of(row, "answer", where, HINT)
        task = task_of(_name(row, len(tasks), where), SET, question, _final(answer, where))
        if task.task_id in tasks:
            raise TaskError("a task id stands there twice", where=f"{where} $.id", value=row.get("id"), hint=HINT)
        tasks[task.task_id] = task
    if not tasks:
        raise TaskError("the file holds no tasks", where=str(path), hint=HINT)
    return list(tasks.values())


def _name(row: dict[str, Any], index: int, where: str) -> str:
    given = row.get("id")
    if given is None:
        return f"{SET}-{index}"
    if isinstance(given, bool) or not isinstance(given, str | int) or not str(given).strip():
        raise TaskError("the id is neither a text nor a whole number", where=f"{where} $.id", value=given, hint=HINT)
    return f"{SET}-{given}"


def _final(answer: str, where: str) -> str:
    """What stands behind the one `####`."""
    _, mark, final = answer.rpartition(MARK)
    if not mark or not final.strip() or answer.count(MARK) != 1 or "\n" in final.strip():
        raise TaskError("the answer does not end in one `#### ANSWER`", where=f"{where} $.answer", value=answer[-80:],
                        hint=HINT)
    return final.strip()

