"""Contest problems are read whole, or refused with the place that is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import TaskError
from tasks.importers import load_tasks

ROW: dict[str, Any] = {
    "hash_id": "a", "responses_create_params": {"input": [{"role": "user", "content": "Double it."}]},
    "verifier_metadata": {"unit_tests": {"inputs": ["1\n"], "outputs": ["2\n"]}}}


def test_a_row_becomes_a_task(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(ROW) + "\n\n")
    task, = load_tasks("contest", path)
    assert (task.task_id, task.kind, task.hidden["stdio"]["tests"]) == (
        "contest-a", "coding", [{"input": "1\n", "output": "2\n"}])
    assert task.prompt.startswith("Double it.")


@pytest.mark.parametrize(("change", "place"), [
    ({"hash_id": ""}, "$.hash_id"), ({"responses_create_params": {}}, "$.responses_create_params.input"),
    ({"verifier_metadata": None}, "unit_tests"),
    ({"verifier_metadata": {"unit_tests": {"inputs": ["1"], "outputs": []}}}, "unit_tests.outputs"),
    ({"verifier_metadata": {"unit_tests": {"inputs": ["1"], "outputs": ["1", "2"]}}}, "unit_tests")])
def test_a_broken_row_is_refused_with_its_place(tmp_path: Path, change: dict[str, Any], place: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(ROW) + "\n" + json.dumps({**ROW, "hash_id": "b", **change}))
    with pytest.raises(TaskError) as refused:
        load_tasks("contest", path)
    assert f"{path}:2" in str(refused.value) and place in str(refused.value)


def test_the_shared_rows_are_read(cases: Callable[[str], Path]) -> None:
    tasks = load_tasks("contest", cases("coding/nemo-gym-code_gen/example-3.jsonl"))
    assert [len(task.hidden["stdio"]["tests"]) for task in tasks] == [1, 97, 100]
