"""A HumanEval file is imported whole or refused with the line, the field, the value and a hint."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import TaskError
from tasks.importers import IMPORTERS, load_tasks

ROW: dict[str, Any] = {
    "task_id": "X/0", "prompt": "def one():\n    \"\"\"Gives 1.\"\"\"\n", "entry_point": "one",
    "canonical_solution": "    return 1\n", "test": "def check(candidate):\n    assert candidate() == 1\n"}


def written(path: Path, *rows: Any) -> Path:
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows) + "\n")
    return path


def test_a_task_has_its_check_hidden_and_its_reference_whole(tmp_path: Path) -> None:
    task, = load_tasks("humaneval", written(tmp_path / "a.jsonl", {**ROW, "difficulty": "unknown key"}, "", "  "))
    assert (task.task_id, task.kind, task.set) == ("X/0", "coding", "humaneval")
    assert task.hidden["check"] == ROW["test"] and "assert" not in task.prompt and ROW["prompt"] in task.prompt
    assert json.loads(task.reference[0])["arguments"]["content"] == ROW["prompt"] + ROW["canonical_solution"]
    assert json.loads(task.reference[-1])["tool"] == "done" and task.files == {}


def test_a_gzipped_file_is_the_same(tmp_path: Path) -> None:
    plain = written(tmp_path / "a.jsonl", ROW)
    packed = tmp_path / "a.jsonl.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert load_tasks("humaneval", packed) == load_tasks("humaneval", plain)


@pytest.mark.parametrize(("second", "where", "value"), [
    ("{", "a.jsonl:2", "{"), ("[1]", "a.jsonl:2", "[1]"), ({**ROW, "task_id": "X/1", "test": 3}, "a.jsonl:2 $.test", 3),
    ({key: value for key, value in ROW.items() if key != "entry_point"}, "a.jsonl:2 $.entry_point", None),
    ({**ROW, "task_id": ""}, "a.jsonl:2 $.task_id", ""),
    ({**ROW, "task_id": "X/1", "prompt": "  "}, "a.jsonl:2 $.prompt", "  "),
    ({**ROW, "task_id": "X/1", "entry_point": "not a name"}, "a.jsonl:2 $.entry_point", "not a name"),
    (ROW, "a.jsonl:2 $.task_id", "X/0")])
def test_a_broken_line_is_named(tmp_path: Path, second: Any, where: str, value: Any) -> None:
    with pytest.raises(TaskError) as caught:
        load_tasks("humaneval", written(tmp_path / "a.jsonl", ROW, second))
    assert caught.value.where.endswith(where) and caught.value.value == value and caught.value.hint
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("content", [b"", b"\n \n", b'\xff\xfe{"a": 1}', b"\x1f\x8b broken", b"\x1f\x8b"])
def test_a_file_that_is_none_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    with pytest.raises(TaskError) as caught:
        load_tasks("humaneval", path)
    assert str(path) in caught.value.where


def test_a_missing_file_a_folder_and_an_unknown_format(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.jsonl", tmp_path):
        with pytest.raises(TaskError, match="cannot be read"):
            load_tasks("humaneval", path)
    with pytest.raises(TaskError) as caught:
        load_tasks("humanevil", tmp_path)
    assert "humaneval" in caught.value.hint and "humaneval" in IMPORTERS


def test_the_real_file(cases: Callable[[str], Path]) -> None:
    tasks = load_tasks("humaneval", cases("coding/humaneval/HumanEval-16.jsonl"))
    assert [task.task_id for task in tasks] == [f"HumanEval/{index}" for index in range(16)]


def test_a_test_that_is_no_python_is_refused_with_its_line(tmp_path: Path) -> None:
    second = {**ROW, "task_id": "X/1", "test": "def check(candidate)\n    assert candidate\n"}
    with pytest.raises(TaskError) as refused:
        load_tasks("humaneval", written(tmp_path / "a.jsonl", ROW, second))
    assert "a.jsonl:2 $.test" in str(refused.value)
