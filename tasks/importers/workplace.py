"""Tasks of the workplace assistant (NeMo Gym): one JSON object a line with the request, the tools, and the calls that
change what must change (`ground_truth`).

What counts is the state that calls leave: calls that only read are free, those that change something must be the wanted
ones and no others, in any order; texts without regard to case, but for the fields that are names of states.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from schemas.errors import TaskError
from tasks.importers.reading import rows
from tasks.scripts import done
from tasks.task import Task

SET = "workplace"
HINT = "each line has responses_create_params {input, tools} and ground_truth [{name, arguments}]"
READS = ("find", "search", "get", "total", "engaged", "traffic")
EXACT = ["status", "list_name", "board"]
PROTOCOL = ('Hand in the calls that are needed by one turn {"tool": "done", "arguments": {"answer": TEXT}}. TEXT is a '
            'JSON list of {"name": FUNCTION, "arguments": {...}}.')


def load(path: str | Path) -> list[Task]:
    """All tasks of the file; the first line that is broken stops the import."""
    tasks = [_task(where, row) for where, row in rows(Path(path), HINT)]
    if not tasks:
        raise TaskError("the file holds no tasks", where=str(path), hint=HINT)
    return tasks


def _task(where: str, row: dict[str, Any]) -> Task:
    asked = row.get("responses_create_params")
    if not isinstance(asked, dict):
        raise TaskError("the request is missing", where=f"{where} $.responses_create_params", hint=HINT)
    wanted = [_call(call, where) for call in _list(row, "ground_truth", where)]
    functions = functions_of(asked, where)
    said = "\n".join(f"{message.get('role')}: {message.get('content')}" for message in _list(asked, "input", where))
    return Task(
        task_id=f"workplace-{row.get('id')}", kind="tools", set=SET, verifier="calls", tools=["done"],
        prompt=f"Functions:\n{json.dumps(functions, ensure_ascii=False)}\n\n{said}\n\n{PROTOCOL}",
        hidden=hidden_of(functions, wanted), expected_duration_s=0.2, reference=[done(json.dumps(wanted))])


def hidden_of(functions: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> dict[str, Any]:
    """How such calls are judged."""
    return {"functions": functions, "turns": [wanted], "order": "set", "text": "fold", "exact_arguments": EXACT,
            "extra_factor": 0.0, "counted": [one["name"] for one in functions if not _reads(one["name"])]}


def functions_of(asked: dict[str, Any], where: str) -> list[dict[str, Any]]:
    given = _list(asked, "tools", where)
    if not all(isinstance(tool.get("name"), str) for tool in given):
        raise TaskError("a tool has no name", where=f"{where} $.tools", hint=HINT)
    return [{"name": tool["name"], "description": tool.get("description", ""),
             "parameters": tool.get("parameters") or {}} for tool in given]


def _reads(name: str) -> bool:
    return any(word in READS for word in name.split("_"))


def _list(row: dict[str, Any], key: str, where: str) -> list[dict[str, Any]]:
    value = row.get(key)
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise TaskError("this is no list of objects", where=f"{where} $.{key}", hint=HINT)
    return value


def _call(call: dict[str, Any], where: str) -> dict[str, Any]:
    try:
        arguments = json.loads(call["arguments"]) if isinstance(call["arguments"], str) else call["arguments"]
        if not isinstance(arguments, dict) or not isinstance(call["name"], str):
            raise ValueError("not a name and an object")
    except (KeyError, ValueError) as wrong:
        raise TaskError(f"a wanted call cannot be read ({wrong})", where=f"{where} $.ground_truth", value=call,
                        hint=HINT) from None
    return {"name": call["name"], "arguments": arguments}
