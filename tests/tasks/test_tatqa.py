"""A TAT-QA file is imported whole or refused with the place, the value and a hint."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import TaskError
from tasks.importers import load_tasks

CONTEXT: dict[str, Any] = {
    "table": {"uid": "t", "table": [["", "2019"], ["Sales", "1,496.5"]]},
    "paragraphs": [{"uid": "p", "order": 1, "text": "In millions."}],
    "questions": [{"uid": "q1", "order": 1, "question": "What were the sales?", "answer": ["1,496.5"],
                   "scale": "million", "answer_type": "span"},
                  {"uid": "q2", "order": 2, "question": "What is the change?",
                   "answer": -12.60, "scale": "percent", "answer_type": "arithmetic"},
                  {"uid": "q3", "order": 3, "question": "How many?", "answer": "4", "scale": "",
                   "answer_type": "count"}]}


def written(path: Path, data: Any) -> Path:
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


def changed(*place: Any, to: Any) -> list[dict[str, Any]]:
    contexts = [copy.deepcopy(CONTEXT)]
    holder: Any = contexts
    for step in place[:-1]:
        holder = holder[step]
    holder[place[-1]] = to
    return contexts


def test_a_question_is_a_task_with_the_report_as_files(tmp_path: Path) -> None:
    span, computed, count = load_tasks("tatqa", written(tmp_path / "a.json", [CONTEXT]))
    assert (span.task_id, span.kind, span.set) == ("tatqa-q1", "documents", "tatqa")
    assert span.files == {"table.csv": b',2019\nSales,"1,496.5"\n', "text.txt": b"In millions."}
    assert span.hidden == {"question": {"type": "span", "want": ["1,496.5"], "scale": "million"}}
    assert "1,496.5" not in span.prompt and "What were the sales?" in span.prompt
    assert computed.hidden["question"]["want"] == ["-12.6"] and count.hidden["question"]["want"] == ["4"]
    assert json.loads(json.loads(computed.reference[-1])["arguments"]["answer"]) == {
        "answer": "-12.6", "scale": "percent"}


def test_numbers_keep_their_digits(tmp_path: Path) -> None:
    text = json.dumps([CONTEXT]).replace("-12.6", "-12.600000000000000000001")
    assert load_tasks("tatqa", written(tmp_path / "a.json", text))[1].hidden["question"]["want"] == [
        "-12.600000000000000000001"]


@pytest.mark.parametrize(("data", "where"), [
    ("{", "a.json"), ("[]", "a.json"), ("{}", "a.json"), ("[1]", "a.json $[0]"), ("[" * 5000, "a.json"),
    (changed(0, "table", to=None), "$[0].table.table"), (changed(0, "table", "table", to=[1]), "$[0].table.table"),
    (changed(0, "paragraphs", to="x"), "$[0].paragraphs"), (changed(0, "paragraphs", 0, "text", to=[3]), "$.text"),
    (changed(0, "questions", to={}), "$[0].questions"), (changed(0, "questions", to=[]), "a.json"),
    (changed(0, "questions", 0, to=1), "$[0].questions[0]"), (changed(0, "questions", 0, "uid", to=""), "$.uid"),
    (changed(0, "questions", 0, "question", to=None), "$.question"),
    (changed(0, "questions", 0, "answer_type", to="essay"), "$[0].questions[0]"),
    (changed(0, "questions", 0, "scale", to="dozen"), "$[0].questions[0]"),
    (changed(0, "questions", 0, "answer", to=[]), "questions[0].answer"),
    (changed(0, "questions", 0, "answer", to=[["x"]]), "questions[0].answer"),
    (changed(0, "questions", 1, "answer", to="many"), "questions[1].answer"),
    (changed(0, "questions", 1, "uid", to="q1"), "questions[1].uid"), (b"\xff\xfe", "a.json:1")])
def test_a_broken_file_is_named(tmp_path: Path, data: Any, where: str) -> None:
    path = tmp_path / "a.json"
    if isinstance(data, bytes):
        path.write_bytes(data)
    else:
        written(path, data)
    with pytest.raises(TaskError) as caught:
        load_tasks("tatqa", path)
    assert where in caught.value.where and caught.value.hint and caught.value.exit_code == 2


def test_the_real_file(cases: Callable[[str], Path]) -> None:
    tasks = load_tasks("tatqa", cases("documents/tatqa/tatqa_dev_subset.json"))
    assert len(tasks) == 84 and {task.hidden["question"]["type"] for task in tasks} == {
        "span", "multi-span", "arithmetic", "count"}
