"""Tool calls that public reports found misjudged, each with its report; forms that policies hand calls in; defaults;
and accepted calls that their own documentation forbids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from schemas.enums import ScoreStatus
from tasks.importers import load_tasks
from tests.verifiers.test_bfcl import judged as judged_task
from tests.verifiers.test_bfcl import reference
from tests.verifiers.test_tools_calls import judged, task

INTEGER, TEXT = {"type": "integer"}, {"type": "string"}


def function(required: list[str] | None = None, **properties: Any) -> dict[str, Any]:
    return {"name": "f", "parameters": {
        "type": "object", "properties": properties, "required": list(properties) if required is None else required}}


def call(**arguments: Any) -> dict[str, Any]:
    return {"name": "f", "arguments": arguments}


def reward(wanted: Any, documented: dict[str, Any], answer: Any, **hidden: Any) -> float | None:
    listed = wanted if isinstance(wanted, list) else [wanted]
    score = judged(task(listed, functions=[documented], extra_factor=0.0, **hidden), answer)
    assert score.status == ScoreStatus.OK
    return score.reward


ONE = function(a=INTEGER)
TAGGED = '<tool_call>\n{"name": "f", "arguments": {"a": %d}}\n</tool_call>'


@pytest.mark.parametrize(("report", "answer", "right"), [
    ("ShishirPatil/gorilla#662", '```json\n[{"name": "f", "parameters": {"a": 1}}]\n```', True),
    ("ShishirPatil/gorilla#662", '```\n[f(a=1)]\n```', True),
    ("two fences", '```json\n[{"name": "f", "arguments": {"a": 2}}]\n```\n```json\n[f(a=1)]\n```', False),
    ("text around", 'I call f(a=1).', False), ("tags", TAGGED % 1, True), ("tags", TAGGED % 2, False),
    ("tags and text", "I think " + TAGGED % 1, False), ("tags that do not close", "<tool_call>" * 90_000, False),
    ("blanks before a tag", " " * 500_000 + TAGGED % 1, True),
    ("another interface", [{"type": "tool_use", "id": "x", "name": "f", "input": {"a": 1}}], True),
    ("an older interface", [{"role": "assistant", "function_call": {"name": "f", "arguments": '{"a": 1}'}}], True),
    ("both names", [{"name": "f", "arguments": {"a": 2}, "parameters": {"a": 1}}], False),
    ("NousResearch/hermes-agent#5265", [call(a="1")], False), ("a boolean", [call(a=True)], False),
    ("ServiceNow/AU-Harness#30", [call(a=1.0)], True), ("too large for a float", [call(a=1.0000000000000002)], False),
    ("Infinity", '[{"name": "f", "arguments": {"a": 1e400}}]', False),
    ("nested without end", '[{"name": "f", "arguments": {"a": ' + "[" * 900 + "]" * 900 + "}}]", False),
    ("a name twice", '[{"name": "f", "arguments": {"a": 2, "a": 1}}]', False),
    ("a name twice, deeper", '[{"name": "f", "name": "f", "arguments": {"a": 1}}]', False),
    ("arithmetic", "f(a=3-2)", False), ("a set", "f(a={1})", False)])
def test_forms_of_one_call(report: str, answer: Any, right: bool) -> None:
    assert reward(call(a=1), ONE, answer) == float(right)


def test_calls_line_by_line_with_constants_of_json() -> None:
    documented = function(a={}, b={})
    wanted = [call(a=None, b=True), call(a=[1, {"x": None}], b=False)]
    assert reward(wanted, documented, "f(a=null, b=true)\nf(a=[1, {'x': null}], b=false)") == 1.0
    assert reward(wanted, documented, "f(a=null, b=true); x = 1") == 0.0 == reward(wanted, documented, "f(a=nil, b=1)")
    assert reward([call(), call()], function(), [{"name": "f"}, {"name": "f", "arguments": None}]) == 1.0


@pytest.mark.parametrize(("report", "documented", "wanted", "answer", "right"), [
    ("dust-tt/dust#27777", TEXT, "020", "20", False), ("dust-tt/dust#27777", TEXT, "020", 20, False),
    ("dust-tt/dust#27777", TEXT, "020", "020", True), ("an accent of its own", TEXT, "caf\u00e9", "cafe\u0301", True),
    ("another accent", TEXT, "caf\u00e9", "caf\u00e8", False), ("another case", TEXT, "Cafe", "cafe", False),
    ("nothing for a text", TEXT, "x", None, False),
    ("nothing, as allowed", {**TEXT, "nullable": True}, None, None, True),
    ("an enumeration", {"enum": ["celsius", "kelvin"]}, "kelvin", "Kelvin", False),
    ("ShishirPatil/gorilla#233", {"type": "array", "items": {"type": "array", "items": INTEGER}},
     [[1, 2], [3, 4]], [[3, 4], [1, 2]], False),
    ("a pair", {"type": "array", "prefixItems": [INTEGER, TEXT]}, [1, "x"], [1, "x"], True),
    ("a pair, written otherwise", {"type": "array", "items": [INTEGER, TEXT]}, [1, "x"], [1, "y"], False)])
def test_values(report: str, documented: Any, wanted: Any, answer: Any, right: bool) -> None:
    assert reward(call(a=wanted), function(a=documented), [call(a=answer)]) == float(right)


@pytest.mark.parametrize(("wanted", "answer", "right"), [
    ({"a": 5}, {"a": 5, "b": "x"}, True), ({"a": 5, "b": "x"}, {"a": 5}, True), ({"a": 5}, {"a": 5}, True),
    ({"a": 5}, {"a": 5, "b": "y"}, False), ({"a": 5, "b": "y"}, {"a": 5}, False),
    ({"a": 5, "b": "y"}, {"a": 5, "b": "x"}, False), ({"a": 5}, {"a": 5, "b": None}, False)])
def test_an_argument_that_is_left_out_has_its_default(wanted: Any, answer: Any, right: bool) -> None:
    """XuHwang in ShishirPatil/gorilla#557: the answer asked for a value that is the default anyway."""
    documented = function(["a"], a=INTEGER, b={"type": "string", "default": "x"})
    assert reward(call(**wanted), documented, [call(**answer)]) == float(right)
    options = {name: [value] for name, value in wanted.items()}
    assert reward(call(**options), documented, [call(**answer)], alternatives=True) == float(right)


@pytest.mark.parametrize(("report", "documented", "wanted"), [
    ("ShishirPatil/gorilla#838", function(a=INTEGER), {"a": ["ticket_001"]}),
    ("ShishirPatil/gorilla#826", function(a={"type": "string", "enum": [4, 5]}), {"a": ["4"]}),
    ("ShishirPatil/gorilla#301", function(a=INTEGER, initial_velocity=INTEGER), {"a": [1]}),
    ("ShishirPatil/gorilla#776", function(status=TEXT), {"status": [["completed", "failed"]]}),
    ("NVIDIA-NeMo/Skills#1528", function(ids={"type": "ArrayList", "items": {"type": "long"}}), {"ids": [[101, 202]]}),
    ("an argument that is not documented", function(a=INTEGER), {"a": [1], "b": ["x"]}),
    ("alternatives within", function(a={"type": "object", "properties": {"x": INTEGER}}), {"a": [{"x": ["1", ""]}]})])
def test_accepted_calls_outrank_the_documentation(report: str, documented: Any, wanted: dict[str, Any]) -> None:
    answer = {name: options[0] for name, options in wanted.items()}
    if "within" in report:
        answer = {"a": {"x": "1"}}
    asked = task([call(**wanted)], functions=[documented], alternatives=True, extra_factor=0.0)
    score = judged(asked, [call(**answer)])
    assert score.reward == 1.0 and score.evidence["schemas_overruled_by_wanted_calls"]
    for name in answer:
        for other in (7, "other", None, [answer[name]]):
            assert reward(call(**wanted), documented, [call(**{**answer, name: other})], alternatives=True) == 0.0
    assert reward(call(**wanted), documented, [call(**answer, more=1)], alternatives=True) == 0.0


AREA = {"name": "area", "parameters": {"type": "dict", "required": ["base", "none"], "properties": {
    "base": {"type": "integer"}, "class": {"type": "string"}, "none": {"type": "array"}}}}
PACKAGE: dict[str, list[dict[str, Any]]] = {
    "BFCL_v4_simple_python.json": [
        {"id": "simple_0", "question": [[{"role": "user", "content": "area?"}]], "function": [AREA]}],
    "possible_answer/BFCL_v4_simple_python.json": [
        {"id": "simple_0", "ground_truth": [{"area": {"base": ["", 10], "class": ["a", ""], "none": []}}]}],
    "BFCL_v4_irrelevance.json": [
        {"id": "irrelevance_0", "question": [[{"role": "user", "content": "weather?"}]], "function": [
            {"name": "area", "parameters": {"type": "dict", "properties": {}}}]},
        {"id": "live_irrelevance_1", "question": [[{"role": "user", "content": "weather?"}]], "function": []}],
    "BFCL_v4_unanswered.json": [{"id": "x", "question": [], "function": []}]}


def test_the_packages_own_folder_is_imported(tmp_path: Path) -> None:
    for name, rows in PACKAGE.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    tasks = {one.task_id: one for one in load_tasks("bfcl", tmp_path)}
    assert set(tasks) == {"simple_0", "irrelevance_0", "live_irrelevance_1"}
    assert reference(tasks["simple_0"]) == [{"name": "area", "arguments": {"base": 10, "class": "a", "none": []}}]
    for one in tasks.values():
        assert judged_task(one, reference(one)).reward == 1.0
    for name in ("irrelevance_0", "live_irrelevance_1"):
        assert judged_task(tasks[name], [{"name": "area", "arguments": {}}]).reward == 0.0
        assert judged_task(tasks[name], "").reward == 0.0 == judged_task(tasks[name], "no function fits").reward
    for wrong in ({"base": 11, "none": []}, {"none": []}, {"base": 10, "none": [1]},
                  {"base": 10, "none": [], "class": "b"}):
        assert judged_task(tasks["simple_0"], [{"name": "area", "arguments": wrong}]).reward == 0.0
