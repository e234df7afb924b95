"""Rules of tool calls: schemas, orders, comparison of values, extra calls, the state that outranks them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from schemas.enums import ScoreStatus
from tasks.task import Submission, SubmittedCall, Task
from tests.verifiers.rig import Rig
from verifiers.tools_calls import CallsVerifier
from verifiers.tools_match import accepted, fits, loose, matched, same
from verifiers.tools_schema import problem_of
from verifiers.verifier import Score

A, B, C, X = ({"name": name, "arguments": {"n": at}} for at, name in enumerate("abcx"))


def task(wanted: list[dict[str, Any]], **hidden: Any) -> Task:
    return Task(task_id="t", kind="tools", set="s", prompt="p", verifier="calls", hidden={"turns": [wanted], **hidden})


def judged(task: Task, answer: Any, calls: list[SubmittedCall] | None = None) -> Score:
    text = answer if isinstance(answer, str) or answer is None else json.dumps(answer)
    submission = Submission(task_id="t", task_digest="", workspace=None, answer=text, calls=calls or [])
    return CallsVerifier().verify(submission, task, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(("order", "got", "reward"), [
    ("exact", [A, B, C], 1.0), ("exact", [A, C, B], 0.0), ("exact", [X, A, B, C], 0.0), ("exact", [A, B], 0.0),
    ("exact", [A, B, C, X], 0.5), ("subsequence", [A, X, B, C], 0.5), ("subsequence", [X, A, B, X, C], 0.25),
    ("subsequence", [B, A, C], 0.0), ("set", [C, A, B], 1.0), ("set", [C, A, B, A], 0.5), ("set", [A, A, B], 0.0),
    ("graph", [A, B, C], 1.0), ("graph", [B, A, C], 1.0), ("graph", [C, A, B], 0.0), ("graph", [A, C, B], 0.0),
    ("graph", [C, A, B, C], 0.5)])
def test_orders(order: str, got: list[Any], reward: float) -> None:
    edges = [[0, 2], [1, 2]] if order == "graph" else []
    assert judged(task([A, B, C], order=order, edges=edges, extra_factor=0.5), got).reward == reward


def test_a_rate_pays_what_was_found() -> None:
    score = judged(task([A, B, C], order="subsequence", reward="rate", extra_factor=0.5), [A, X, C])
    assert score.components == {"calls": 2 / 3, "clean": 0.5} and score.reward == pytest.approx(1 / 3)


def test_pairs_are_found_whatever_comes_first() -> None:
    """The first wanted call fits both, the second only the first one."""
    assert matched("set", [[True, True], [True, False]]) == [1, 0]
    assert matched("graph", [[True, True], [True, False]], [(1, 0)]) == [1, 0]
    assert matched("subsequence", [[False, True, False], [True, False, True]]) == [1, 2]


@pytest.mark.parametrize(("got", "want", "equal"), [
    (1, 1.0, True), (True, 1, False), (1, True, False), (False, 0, False), (0.1 + 0.2, 0.3, False), ("1", 1, False),
    (None, False, False), (None, None, True), ([1, 2], [2, 1], False), ([1], [1.0], True), ({"a": 1, "b": [2]},
    {"b": [2.0], "a": 1}, True), ({"a": 1}, {"a": 1, "b": None}, False), ([], {}, False), ("A", "a", False),
    (2**53 + 1, float(2**53), False), (float("nan"), float("nan"), False)])
def test_values_are_compared_as_json(got: Any, want: Any, equal: bool) -> None:
    assert same(got, want) is equal and same(want, got) is equal


@pytest.mark.parametrize(("one", "other", "equal"), [
    ("San Diego, CA", "san diego ca", True), ("2023-05-01", "2023/05/01", True), ("x**2", "x^2", True),
    ("5 pm", "5pm", True), ("New-York", "new york", True), ("1.5", "15", False), ("1.5", "1,5", False),
    ("-5", "5", False), ("3x**2 + 2x - 1", "3x**2 + 2x + 1", False), ("3x**2 + 2x - 1", "3x**2+2x-1", True),
    ("x**2", "x2", False), ("x*2", "x**2", False), ("2023-05-01", "20230501", False), ("..", ".", False),
    ("1 5", "15", False), ("v1.2.3", "v123", False), ("10:30", "1030", False), ("", " ", False)])
def test_loose_texts_never_make_two_numbers_one(one: str, other: str, equal: bool) -> None:
    assert same(one, other, loose) is equal


def test_alternatives_reach_into_objects_and_lists() -> None:
    wanted: dict[str, list[Any]] = {"where": [{"at": [{"x": [1.5, 2], "y": [3]}], "name": ["a", ""]}],
                                    "list": [[{"k": ["v"]}, 2.0]]}
    good: dict[str, Any] = {"where": {"at": {"x": 2, "y": 3}}, "list": [{"k": "V"}, 2]}
    assert fits(good, wanted, loose)
    for wrong in ({"where": {"at": {"x": 2}}, "list": [{"k": "v"}, 2]}, {**good, "list": [{"k": "v"}, True]},
                  {**good, "list": [{"k": "v", "l": 1}, 2]}, {"where": good["where"]},
                  {**good, "where": {"at": {"x": 1.4, "y": 3}}}):
        assert not fits(wrong, wanted, loose), wrong
    assert accepted(1, [1.0, ""], loose) and not accepted("", ["units", ""], loose) and accepted("", [""], loose)


@pytest.mark.parametrize(("value", "schema", "said"), [
    (1.0, {"type": "integer"}, None), (1.5, {"type": "integer"}, "integer"), (True, {"type": "integer"}, "integer"),
    (True, {"type": "number"}, "number"), (1, {"type": "number"}, None), ("1", {"type": ["null", "number"]}, "null or"),
    (None, {"type": ["null", "number"]}, None), ({"a": 1}, {"type": "object", "properties": {}}, None),
    ({"a": 1, "b": 2}, {"type": "object", "properties": {"a": {}}}, "$.b is not known"),
    ({"b": 2}, {"properties": {"a": {}}, "additionalProperties": {"type": "string"}}, "$.b must be string"),
    ({}, {"required": ["a"]}, "$.a is missing"), ([1, "2"], {"items": {"type": "integer"}}, "$[1]"),
    ([1, 1.0], {"uniqueItems": True}, "twice"), ("abc", {"pattern": "^b"}, "match"), (11, {"maximum": 10}, "maximum"),
    ("c", {"enum": ["a", "b"]}, "one of"), (1.0, {"enum": [1]}, None), (True, {"enum": [1]}, "one of"),
    (2, {"const": 3}, "must be 3"), (1, {"anyOf": [{"type": "string"}, {"minimum": 2}]}, "$"),
    (1, {"oneOf": [{"type": "integer"}, {"type": "number"}]}, "more than one"), ({"a": {"b": [{"c": "1"}]}},
    {"properties": {"a": {"properties": {"b": {"items": {"properties": {"c": {"type": "number"}}}}}}}}, "$.a.b[0].c")])
def test_schemas(value: Any, schema: dict[str, Any], said: str | None) -> None:
    problem = problem_of(value, schema)
    assert problem is None if said is None else problem is not None and said in problem


FUNCTION = {"name": "m.f", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}
CALL = {"name": "m.f", "arguments": {"a": 1}}


@pytest.mark.parametrize(("answer", "reward"), [
    ([CALL], 1.0), (CALL, 1.0), ("m.f(a=1)", 1.0), ("[m.f(1)]", 1.0), ([{"name": "m_f", "arguments": {"a": 1.0}}], 1.0),
    ([{"m.f": {"a": 1}}], 1.0), ([{"name": "m.f", "arguments": '{"a": 1}'}], 1.0), (["m.f(a=1)"], 1.0),
    ([{"name": "f", "arguments": {"a": 1}}], 0.0), ([{"name": "m.f", "arguments": {"a": "1"}}], 0.0), (None, 0.0),
    ([{"name": "m.f", "arguments": {"a": True}}], 0.0), ([{"name": "m.f", "arguments": {"a": 1, "b": 2}}], 0.0),
    ('[{"name": "m.f", "arguments": {"a": 2, "a": 1}}]', 0.0), ("[" * 100_000, 0.0), ("m.f(a=" + "(" * 5000, 0.0),
    ("m.f(a=__import__('os').getpid())", 0.0), ("m.f(**{'a': 1})", 0.0), ("m.f(1, a=1)", 0.0), ("", 0.0), ("[]", 0.0),
    ([{"name": "m.f", "arguments": [1]}], 0.0), ([{"name": "m.f", "arguments": "{"}], 0.0), ([3], 0.0), ("NaN", 0.0),
    ([CALL] * 600, 0.0), ("x" * (2 << 20), 0.0), ([{"name": 3, "arguments": {}}], 0.0), ([[CALL]], 1.0),
    ([{"role": "assistant", "tool_calls": 5}], 0.0), ("m.f(a=1j)", 0.0), ("m.f(a={1})", 0.0),
    ([{**CALL, "type": "function_call", "call_id": "1"}, {"type": "function_call_output", "call_id": "1"}], 1.0),
    ([{**CALL, "type": "function_call", "call_id": "1"}, {"type": "function_call_output", "call_id": "2"}], 0.0),
    ([{**CALL, "type": "function_call", "call_id": "1"}] * 2 + [{"type": "function_call_output", "call_id": "1"}],
     0.0)])
def test_answers_that_are_calls_and_that_are_none(answer: Any, reward: float) -> None:
    score = judged(task([CALL], functions=[FUNCTION], extra_factor=0.0), answer)
    assert (score.status, score.reward) == (ScoreStatus.OK, reward), score.evidence


def test_the_episodes_own_calls(rig: Rig) -> None:
    def call(tool: str, arguments: dict[str, Any], status: str = "ok") -> SubmittedCall:
        return SubmittedCall(turn=0, tool=tool, arguments=json.dumps(arguments), status=status, output="")

    wanted = task([{"name": "run", "arguments": {"command": "make"}}], source="episode", order="subsequence")
    look, make = call("read_file", {"path": "a"}), call("run", {"command": "make"})
    assert judged(wanted, None, [make, call("done", {})]).reward == 1.0
    assert judged(wanted, None, [look, make]).reward == 0.9
    assert judged(wanted, None, [call("run", {"command": "make"}, "error")]).reward == 0.0


def test_the_final_state_outranks_the_calls(rig: Rig) -> None:
    state = task([A], state=[{"file": "out", "equals": "1\n"}])
    done = rig.score(rig.hand_in(state, {"out": "1\n"}, answer=json.dumps([B])))
    assert done.components == {"state": 1.0, "calls": 0.0, "clean": 0.9} and done.reward == 0.9
    assert rig.score(rig.hand_in(state, {"out": "2\n"}, answer=json.dumps([A]))).reward == 0.0


@pytest.mark.parametrize("hidden", [
    {"order": "random"}, {"text": "x"}, {"edges": [[0, 1]]}, {"order": "graph", "edges": [[0, 1], [1, 0]]},
    {"order": "graph", "edges": [[0, 9]]}, {"extra_factor": 2.0}, {"turns": [[{"name": "a"}]]}, {"unknown": 1}])
def test_a_task_that_is_wrong_is_no_zero(rig: Rig, hidden: dict[str, Any]) -> None:
    wrong = Task(task_id="t", kind="tools", set="s", prompt="p", verifier="calls", hidden={"turns": [[A, B]], **hidden})
    assert rig.score(rig.hand_in(wrong, answer=json.dumps([A, B]))).status == ScoreStatus.VERIFIER_ERROR


def test_a_graph_that_cannot_be_searched_out_is_not_found() -> None:
    """Many equal calls and one that never comes: bounded, and no error that a policy could bring about."""
    wanted = [{"name": "a", "arguments": {}}] * 12 + [{"name": "z", "arguments": {}}]
    many = [{"name": "a", "arguments": {}}] * 400
    assert judged(task(wanted, order="graph", edges=[[0, 12]]), many).reward == 0.0
