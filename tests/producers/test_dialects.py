"""Reading turns never fails: what cannot be read is kept as it was written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.dialects import DIALECTS, Call, Malformed, dialect
from producers.json_schema import problem_of
from producers.tools import TOOLS, tools_of
from schemas.errors import TaskError
from tasks.task import Task

LINE, JSON = dialect("line"), dialect("json")


def test_a_line_is_a_tool_and_words_split_at_single_spaces() -> None:
    assert LINE.parse(" write out.txt  two\n") == [Call("write", "out.txt  two", ["out.txt", "", "two"])]
    assert LINE.parse("done") == [Call("done", "", [])]


def test_json_is_one_call_or_several() -> None:
    one = '{"tool": "run", "arguments": {"command":  "ls"}}'
    assert JSON.parse(one) == [Call("run", '{"command":  "ls"}', {"command": "ls"})]
    assert JSON.parse(f" [{one}, {one}] ") == JSON.parse(one) * 2
    assert JSON.parse("[]") == [Malformed("", "[]", "no call in the turn")]


@given(st.text())
def test_any_text_is_read_and_its_raw_form_kept(text: str) -> None:
    for one in DIALECTS.values():
        read = one.parse(text)
        assert read
        assert all(call.raw in text for call in read if isinstance(call, Call) and call.raw != "{}")


@given(st.text(), st.sampled_from(sorted(DIALECTS)))
def test_what_is_shown_is_never_longer_than_allowed(text: str, name: str) -> None:
    shown, cut = dialect(name).cut(text * 50)
    assert len(shown.encode(errors="surrogatepass")) <= dialect(name).shown_bytes
    assert cut or shown == text * 50


@pytest.mark.parametrize(("value", "problem"), [
    ({"a": 1, "b": ["x"]}, None),
    ({"b": []}, "$.a is missing"),
    ({"a": True}, "$.a must be integer, not bool"),
    ({"a": 1, "c": 1}, "$.c is not known; known are a, b"),
    ({"a": 1, "b": [1]}, "$.b[0] must be string, not int"),
    ({"a": 1, "b": ["x"] * 3}, "$.b has 3 items, at most 2 are allowed"),
    ([], "$ must be object, not list"),
    (None, "$ must be object, not NoneType"),
])
def test_schema_problems_name_the_place(value: object, problem: str | None) -> None:
    schema = {"type": "object", "required": ["a"], "additionalProperties": False, "properties": {
        "a": {"type": "integer"}, "b": {"type": "array", "maxItems": 2, "items": {"type": "string"}}}}
    assert problem_of(value, schema) == problem


def test_every_tool_says_what_it_does_and_needs() -> None:
    for tools in TOOLS.values():
        assert "done" in tools
        for name, tool in tools.items():
            assert (tool.name, bool(tool.description)) == (name, True)
            assert problem_of(tool.schema, {"type": "object"}) is None


def test_a_task_names_tools_that_are_known() -> None:
    task = Task(task_id="t", kind="coding", set="s", prompt="p")
    assert set(tools_of(task)) == {"write_file", "read_file", "run", "done"}
    with pytest.raises(TaskError, match="unknown tool"):
        tools_of(Task(task_id="t", kind="coding", set="s", prompt="p", tools=["run", "fly"]))
    with pytest.raises(TaskError, match="unknown dialect"):
        dialect("xml")
