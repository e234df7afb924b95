"""TAT-QA: a JSON list of contexts, each a table, paragraphs, and questions with answer, answer_type and scale.

One task a question; table and paragraphs are files of its workspace. Numbers keep the digits of the file.
"""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

from schemas.errors import TaskError
from tasks.importers.reading import parse_json, read_text, text_of
from tasks.scripts import PROTOCOL, TOOLS, done, run
from tasks.task import Task

SET = "tatqa"
TYPES = ("span", "multi-span", "arithmetic", "count")
SCALES = ("", "percent", "thousand", "million", "billion")
HINT = ("a TAT-QA file is a JSON list of {table: {table}, paragraphs: [{order, text}], questions: [{uid, question, "
        "answer, answer_type, scale}]}")


class _Number(str):
    """A JSON number as it was written."""


def load(path: str | Path) -> list[Task]:
    """All questions of the file. The first that is broken stops the import; nothing is registered by halves."""
    path = Path(path)
    contexts = parse_json(read_text(path, HINT), str(path), HINT, parse_float=_Number, parse_int=_Number)
    if not isinstance(contexts, list) or not contexts:
        raise TaskError("the file is not a list of contexts", where=str(path), hint=HINT)
    tasks: dict[str, Task] = {}
    for index, context in enumerate(contexts):
        where = f"{path} $[{index}]"
        files = _files(context, where)
        for number, question in enumerate(_list(context, "questions", where)):
            task = _task(question, files, f"{where}.questions[{number}]")
            if task.task_id in tasks:
                raise TaskError("a uid stands there twice", where=f"{where}.questions[{number}].uid",
                                value=task.task_id, hint=HINT)
            tasks[task.task_id] = task
    if not tasks:
        raise TaskError("the file holds no questions", where=str(path), hint=HINT)
    return list(tasks.values())


def _list(value: Any, key: str, where: str) -> list[Any]:
    found = value.get(key) if isinstance(value, dict) else None
    if not isinstance(found, list):
        raise TaskError("not a list", where=f"{where}.{key}", value=found, hint=HINT)
    return found


def _files(context: Any, where: str) -> dict[str, bytes]:
    """`table.csv` and `text.txt`."""
    if not isinstance(context, dict):
        raise TaskError("not an object", where=where, value=context, hint=HINT)
    table = _list(context.get("table"), "table", f"{where}.table")
    if not all(isinstance(line, list) for line in table):
        raise TaskError("a row of the table is not a list", where=f"{where}.table.table", hint=HINT)
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows(table)
    paragraphs = [text_of(item, "text", f"{where}.paragraphs[{index}]", HINT) if isinstance(item, dict) else ""
                  for index, item in enumerate(_list(context, "paragraphs", where))]
    return {"table.csv": written.getvalue().encode(), "text.txt": "\n\n".join(paragraphs).encode()}


def _task(question: Any, files: dict[str, bytes], where: str) -> Task:
    if not isinstance(question, dict):
        raise TaskError("not an object", where=where, value=question, hint=HINT)
    uid, asked = text_of(question, "uid", where, HINT), text_of(question, "question", where, HINT)
    kind, scale = question.get("answer_type"), question.get("scale")
    if kind not in TYPES or scale not in SCALES:
        raise TaskError("an unknown answer type or scale", where=where, value=[kind, scale],
                        hint=f"types: {', '.join(TYPES)}; scales: {', '.join(filter(None, SCALES))} or empty")
    want = _want(question.get("answer"), kind, where)
    said = want if kind in ("span", "multi-span") else want[0]
    answer = json.dumps({"answer": said, "scale": scale}, ensure_ascii=False)
    return Task(
        task_id=f"tatqa-{uid}", kind="documents", set=SET, prompt=_prompt(asked), tools=TOOLS, files=files,
        expected_duration_s=1.0, hidden={"question": {"type": kind, "want": want, "scale": scale}},
        reference=[run("cat text.txt table.csv"), done(answer)])


def _want(answer: Any, kind: str, where: str) -> list[str]:
    spans = answer if isinstance(answer, list) else [answer]
    if any(not isinstance(span, str) for span in spans) or not any(span.strip() for span in spans):
        raise TaskError("the answer is neither text nor number", where=f"{where}.answer", value=answer, hint=HINT)
    if kind in ("arithmetic", "count"):
        try:
            float(spans[0].replace(",", "").strip("$%() "))
        except ValueError:
            raise TaskError("the answer is not a number", where=f"{where}.answer", value=answer, hint=HINT) from None
    return [str(span) for span in spans]


def _prompt(question: str) -> str:
    return (
        f"Read table.csv and text.txt (a table and paragraphs of one report) and answer:\n\n{question}\n\nHand in one "
        'JSON object {"answer": ..., "scale": ...}: answer is a number, a text as it stands in the report, or a list '
        'of such texts where several are asked for; scale is "percent", "thousand", "million", "billion", or "" where '
        f"the answer has none.\n\n{PROTOCOL}")
