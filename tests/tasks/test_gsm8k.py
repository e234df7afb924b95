"""A GSM8K file is imported whole or refused with the line, the key, the value and a hint."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import TaskError
from tasks.importers import load_tasks

ROW: dict[str, Any] = {"question": "How many {clips}?", "answer": "48/2 = <<48/2=24>>24 clips.\n#### 1,024"}


def written(path: Path, *rows: Any) -> Path:
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows) + "\n")
    return path


def test_the_answer_is_hidden_and_the_reference_hands_it_in(tmp_path: Path) -> None:
    one, two, three = load_tasks("gsm8k", written(tmp_path / "a.jsonl", ROW, "", {**ROW, "id": "x"}, {**ROW, "id": 7}))
    assert [task.task_id for task in (one, two, three)] == ["gsm8k-0", "gsm8k-x", "gsm8k-7"]
    assert (one.kind, one.set, one.hidden) == ("math", "gsm8k", {"want": "1,024"})
    assert "How many {clips}?" in one.prompt and "1,024" not in one.prompt
    assert json.loads(one.reference[-1])["arguments"]["answer"] == "1,024"


def test_a_gzipped_file_and_windows_lines_are_the_same(tmp_path: Path) -> None:
    plain, packed = written(tmp_path / "a.jsonl", ROW), tmp_path / "a.jsonl.gz"
    packed.write_bytes(gzip.compress(b"\xef\xbb\xbf" + plain.read_bytes().replace(b"\n", b"\r\n")))
    assert load_tasks("gsm8k", packed) == load_tasks("gsm8k", plain)


@pytest.mark.parametrize(("second", "where"), [
    ("{", "a.jsonl:2"), ("[1]", "a.jsonl:2"), ({"question": "x"}, "a.jsonl:2 $.answer"),
    ({**ROW, "answer": "42"}, "a.jsonl:2 $.answer"), ({**ROW, "answer": "#### "}, "a.jsonl:2 $.answer"),
    ({**ROW, "answer": "#### 4\n#### 5"}, "a.jsonl:2 $.answer"),
    ({**ROW, "answer": "#### 4\nor 5"}, "a.jsonl:2 $.answer"),
    ({**ROW, "answer": 42}, "a.jsonl:2 $.answer"), ({**ROW, "question": " "}, "a.jsonl:2 $.question"),
    ({**ROW, "id": ""}, "a.jsonl:2 $.id"), ({**ROW, "id": True}, "a.jsonl:2 $.id"),
    ({**ROW, "id": 0}, "a.jsonl:2 $.id")])
def test_a_broken_line_is_named(tmp_path: Path, second: Any, where: str) -> None:
    with pytest.raises(TaskError) as caught:
        load_tasks("gsm8k", written(tmp_path / "a.jsonl", {**ROW, "id": 0}, second))
    assert caught.value.where.endswith(where) and caught.value.hint and caught.value.exit_code == 2


@pytest.mark.parametrize("content", [b"", b"\n \n", b'\xff\xfe{"a": 1}', b"\x1f\x8b broken", b"\x1f\x8b"])
def test_a_file_that_is_none_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    with pytest.raises(TaskError) as caught:
        load_tasks("gsm8k", path)
    assert str(path) in caught.value.where
