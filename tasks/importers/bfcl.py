"""BFCL: `NAME.jsonl` with questions and functions, beside it `NAME.answers.jsonl` with the accepted calls; or as the
package has them, `NAME.json` beside `possible_answer/NAME.json`; or a folder of such files. Simple, multiple and
parallel questions, those of several turns, and those that no function answers (`irrelevance`, without answers).

Calls are handed in as the answer, and compared as verifiers.tools_calls says: alternatives for each argument, at any
depth. In questions of several turns the wanted calls of each turn must come in their order; the state of the simulated
services is not computed, so another way to the same state is not paid.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from schemas.errors import TaskError
from tasks.calls import named_arguments, parse_calls
from tasks.importers.reading import rows
from tasks.scripts import done
from tasks.task import Task

SET = "bfcl"
HINT = "a BFCL file NAME.jsonl has its answers beside it in NAME.answers.jsonl, line by line with the same ids"
_TYPES = {"dict": "object", "float": "number", "tuple": "array", "double": "number", "long": "integer",
          "byte": "integer", "short": "integer", "char": "string", "String": "string", "Boolean": "boolean"}
_ANY = ("any", "Any")
ANSWERS, DOCS = "possible_answer", "multi_turn_func_doc"
"""Folders of the package."""
_IRRELEVANT = "irrelevance"
CLASSES = {"GorillaFileSystem": "gorilla_file_system", "TwitterAPI": "posting_api", "PostingAPI": "posting_api",
           "MathAPI": "math_api", "MessageAPI": "message_api", "TicketAPI": "ticket_api",
           "VehicleControlAPI": "vehicle_control", "TradingBot": "trading_bot", "TravelAPI": "travel_booking"}
PROTOCOL = ('Hand in the calls, without making them, by one turn {"tool": "done", "arguments": {"answer": TEXT}}. TEXT '
            'is a JSON list of {"name": FUNCTION, "arguments": {...}}')


def load(path: str | Path) -> list[Task]:
    """All tasks; the first line that is broken stops the import."""
    path = Path(path)
    files = _files(path) if path.is_dir() else [path]
    tasks: dict[str, Task] = {}
    for file in files:
        for task in _load(file):
            if task.task_id in tasks:
                raise TaskError("a task id stands there twice", where=str(file), value=task.task_id, hint=HINT)
            tasks[task.task_id] = task
    if not tasks:
        raise TaskError("there are no tasks", where=str(path), hint=HINT)
    return list(tasks.values())


def _files(folder: Path) -> list[Path]:
    """Those that have answers, or need none."""
    return sorted([file for file in folder.glob("*.jsonl") if ".answers." not in file.name]
                  + [file for file in folder.glob("*.json") if (folder / ANSWERS / file.name).is_file()
                     or (_IRRELEVANT in file.name and (folder / ANSWERS).is_dir())])


def _answers_of(file: Path) -> Path:
    beside = file.parent / ANSWERS / file.name
    return beside if beside.is_file() else file.with_suffix(".answers.jsonl")


def _load(file: Path) -> list[Task]:
    given = _answers_of(file)
    none = _IRRELEVANT in file.name and not given.is_file()
    answers = {} if none else {row.get("id"): (where, row) for where, row in rows(given, HINT)}
    tasks = []
    for where, row in rows(file, HINT):
        name = row.get("id")
        if none and isinstance(name, str):
            answers[name] = (where, {"ground_truth": []})
        if not isinstance(name, str) or name not in answers:
            raise TaskError("this question has no answer", where=f"{where} $.id", value=name, hint=HINT)
        place, answer = answers[name]
        tasks.append(_task(name, row, answer.get("ground_truth"), where, place, file.parent))
    return tasks


def _task(name: str, row: dict[str, Any], truth: Any, where: str, place: str, folder: Path) -> Task:
    try:
        messages = [[(message["role"], message["content"]) for message in turn] for turn in row["question"]]
    except (KeyError, TypeError):
        raise TaskError("the question is no list of turns of messages", where=f"{where} $.question",
                        hint=HINT) from None
    if not isinstance(truth, list) or not (truth or _IRRELEVANT in name):
        raise TaskError("the answer has no calls", where=f"{place} $.ground_truth", value=truth, hint=HINT)
    several = bool(truth) and isinstance(truth[0], list)
    functions = _functions(row, where, folder)
    wanted = _turns(truth, functions, place) if several else [_alternatives(truth, place)]
    if len(wanted) != (len(messages) if several else 1):
        raise TaskError("question and answer have different numbers of turns", where=place, value=len(wanted),
                        hint=HINT)
    rule = {"order": "subsequence"} if several else {"order": "set", "alternatives": True, "extra_factor": 0.0}
    required = {one["name"]: one["parameters"].get("required", []) for one in functions}
    calls = wanted if several else [[_first(call, required.get(call["name"], [])) for call in wanted[0]]]
    return Task(
        task_id=name, kind="tools", set=SET, verifier="calls", tools=["done"], expected_duration_s=0.2,
        prompt=_prompt(messages, functions, several),
        hidden={"functions": functions, "turns": wanted, "text": "loose", **rule},
        reference=[done(json.dumps(calls if several else calls[0], ensure_ascii=False))])


def _functions(row: dict[str, Any], where: str, folder: Path) -> list[dict[str, Any]]:
    given = row.get("function")
    if given is None:
        given = []
        for name in row.get("involved_classes", []):
            if name not in CLASSES:
                raise TaskError("a class of functions is not known", where=f"{where} $.involved_classes", value=name,
                                hint=f"known: {', '.join(CLASSES)}")
            docs = folder / DOCS if (folder / DOCS).is_dir() else folder
            given += [function for _, function in rows(docs / f"{CLASSES[name]}.json", HINT)]
        given = [one for one in given if one.get("name") not in (row.get("excluded_function") or [])]
    relevant = _IRRELEVANT not in str(row.get("id"))
    if not isinstance(given, list) or (relevant and not given) or not all(
            isinstance(one, dict) and isinstance(one.get("name"), str) for one in given):
        raise TaskError("there are no functions", where=f"{where} $.function", hint=HINT)
    return [{"name": one["name"], "description": str(one.get("description", "")),
             "parameters": _schema(one.get("parameters", {}))} for one in given]


def _schema(given: Any) -> Any:
    """A JSON schema of BFCL's own names of types."""
    if not isinstance(given, dict):
        return {}
    schema = {key: value for key, value in given.items() if key in ("description", "enum", "required", "default")}
    kind = given.get("type")
    if isinstance(kind, str) and kind not in _ANY:
        schema["type"] = _TYPES.get(kind, kind)
    if isinstance(given.get("properties"), dict):
        schema["properties"] = {name: _schema(value) for name, value in given["properties"].items()}
    if isinstance(given.get("items"), dict):
        schema["items"] = _schema(given["items"])
    return schema


def _alternatives(truth: list[Any], place: str) -> list[dict[str, Any]]:
    wanted = []
    for call in truth:
        if not isinstance(call, dict) or len(call) != 1:
            raise TaskError("an accepted call is no object with one function", where=f"{place} $.ground_truth",
                            value=call, hint=HINT)
        (name, arguments), = call.items()
        if not isinstance(arguments, dict) or not all(isinstance(options, list) for options in arguments.values()):
            raise TaskError("an argument has no list of accepted values", where=f"{place} $.ground_truth",
                            value=arguments, hint=HINT)
        # No accepted value at all stands for the empty list.
        wanted.append({"name": name, "arguments": {key: options or [[], ""] for key, options in arguments.items()}})
    return wanted


def _turns(truth: list[Any], functions: list[dict[str, Any]], place: str) -> list[list[dict[str, Any]]]:
    parameters = {one["name"]: list(one["parameters"].get("properties", {})) for one in functions}
    turns = []
    for texts in truth:
        turn = []
        for text in texts:
            try:
                call, = parse_calls(text)
                turn.append({"name": call.name, "arguments": named_arguments(call, parameters.get(call.name, []))})
            except ValueError as wrong:
                raise TaskError(f"an accepted call cannot be read ({wrong})", where=f"{place} $.ground_truth",
                                value=text, hint=HINT) from None
        turns.append(turn)
    return turns


def _first(call: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"name": call["name"], "arguments": first_values(call["arguments"], required)}


def first_values(arguments: dict[str, list[Any]], required: Sequence[str] = ()) -> dict[str, Any]:
    """The first accepted value of each argument, where that is not that it may be left out and it may."""
    chosen = {name: [option for option in options if option != "" or name not in required] or options
              for name, options in arguments.items()}
    return {name: _plain(options[0]) for name, options in chosen.items() if options and options[0] != ""}


def _plain(option: Any) -> Any:
    if isinstance(option, dict) and all(isinstance(value, list) for value in option.values()):
        return first_values(option)
    return [_plain(item) for item in option] if isinstance(option, list) else option


def _prompt(messages: list[list[tuple[str, str]]], functions: list[dict[str, Any]], several: bool) -> str:
    parts = [f"Functions:\n{json.dumps(functions, ensure_ascii=False)}"]
    for number, turn in enumerate(messages):
        said = "\n".join(f"{role}: {content}" for role, content in turn)
        parts.append(f"Turn {number + 1}:\n{said}" if several else said)
    end = "; hand in a list of such lists, one a turn." if several else "."
    return "\n\n".join([*parts, PROTOCOL + end])
