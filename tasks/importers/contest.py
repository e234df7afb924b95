"""Contest problems (NeMo-Gym code generation): a text to read, a text to write, as JSON lines.

`responses_create_params.input` is the prompt, `verifier_metadata.unit_tests` has `inputs` and `outputs`; the id is
`hash_id`. The rows have no solution. Other keys are ignored.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from schemas.errors import TaskError
from tasks.importers.reading import rows, text_of
from tasks.scripts import PROTOCOL, TOOLS
from tasks.task import Task

SET = "contest"
PATH = "solution.py"
HINT = ("each line is a JSON object with hash_id, responses_create_params.input and verifier_metadata.unit_tests "
        "{inputs, outputs}")


def load(path: str | Path) -> list[Task]:
    """All tasks of the file. The first line that is broken stops the import."""
    path = Path(path)
    tasks: dict[str, Task] = {}
    for where, row in rows(path, HINT):
        task = _task(row, where)
        if task.task_id in tasks:
            raise TaskError("a task id stands there twice", where=f"{where} $.hash_id", value=task.task_id, hint=HINT)
        tasks[task.task_id] = task
    if not tasks:
        raise TaskError("the file holds no tasks", where=str(path), hint=HINT)
    return list(tasks.values())


def _task(row: dict[str, Any], where: str) -> Task:
    return Task(
        task_id=f"contest-{text_of(row, 'hash_id', where, HINT)}", kind="coding", set=SET, tools=TOOLS,
        prompt=f"{_prompt(row, where)}\n\nWrite the whole program to {PATH}: it reads the input from stdin and writes "
               f"the output to stdout.\n\n{PROTOCOL}",
        hidden={"stdio": {"path": PATH, "language": "python", "reward": "all", "tests": _tests(row, where)}})


def _prompt(row: dict[str, Any], where: str) -> str:
    asked = row.get("responses_create_params")
    messages = asked.get("input") if isinstance(asked, dict) else None
    if isinstance(messages, str) and messages.strip():
        return messages
    texts = [message.get("content") if isinstance(message, dict) else None
             for message in messages] if isinstance(messages, list) else []
    if not texts or not all(isinstance(text, str) and text.strip() for text in texts):
        raise TaskError("the prompt is not a list of messages with text", value=messages,
                        where=f"{where} $.responses_create_params.input", hint=HINT)
    return "\n\n".join(str(text) for text in texts)


def _tests(row: dict[str, Any], where: str) -> list[dict[str, str]]:
    where = f"{where} $.verifier_metadata.unit_tests"
    held = row.get("verifier_metadata")
    tests = held.get("unit_tests") if isinstance(held, dict) else None
    if not isinstance(tests, dict):
        raise TaskError("there are no unit tests", where=where, value=tests, hint=HINT)
    inputs, outputs = tests.get("inputs"), tests.get("outputs")
    for name, texts in (("inputs", inputs), ("outputs", outputs)):
        if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
            raise TaskError("not a list of texts, or empty", where=f"{where}.{name}", value=texts, hint=HINT)
    assert isinstance(inputs, list) and isinstance(outputs, list)
    if len(inputs) != len(outputs):
        raise TaskError("there are not as many outputs as inputs", where=where, value=[len(inputs), len(outputs)],
                        hint=HINT)
    return [{"input": given, "output": wanted} for given, wanted in zip(inputs, outputs, strict=True)]
