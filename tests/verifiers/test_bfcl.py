"""BFCL and workplace tasks: every accepted answer passes, each altered argument fails, recorded rewards come out again.

Row 35 of the reported failures: integers for floats in lists, scalars that are never compared, dotted names.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from schemas.enums import ScoreStatus
from tasks.importers import load_tasks
from tasks.importers.workplace import functions_of, hidden_of
from tasks.task import Submission, Task
from verifiers.tools_calls import CallsVerifier
from verifiers.verifier import Score

FILES = ("simple_python", "multiple", "parallel", "multi_turn_base")


def judged(task: Task, calls: Any) -> Score:
    """Without a sandbox: these tasks have no probes."""
    answer = calls if isinstance(calls, str) else json.dumps(calls)
    submission = Submission(task_id=task.task_id, task_digest="", workspace=None, answer=answer)
    return CallsVerifier().verify(submission, task, None)  # type: ignore[arg-type]


def reference(task: Task) -> Any:
    return json.loads(json.loads(task.reference[-1])["arguments"]["answer"])


def altered(value: Any) -> Iterator[Any]:
    """Values near to this one that are other values."""
    if isinstance(value, bool):
        yield from (not value, int(value), str(value), None)
    elif isinstance(value, int | float):
        yield from (value + 1, value * 10 + 1, -value or 3, str(value), [value], value + 0.5, True, None)
    elif isinstance(value, str):
        yield from (value + "x", "x" + value, value[:-1] + "q", "", 7, [value], None)
    elif isinstance(value, list):
        yield from ([*value, *value[-1:]], value[:-1], [], {"a": value})
        for at, item in enumerate(value):
            for other in altered(item):
                yield [*value[:at], other, *value[at + 1:]]
    elif isinstance(value, dict):
        yield {**value, "unknown": 1}
        for key, item in value.items():
            yield {name: content for name, content in value.items() if name != key}
            for other in altered(item):
                yield {**value, key: other}


def variants(call: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {**call, "name": call["name"] + "s"}
    yield {**call, "arguments": {**call["arguments"], "unknown": 1}}
    for name, value in call["arguments"].items():
        for other in altered(value):
            yield {**call, "arguments": {**call["arguments"], name: other}}


@pytest.fixture(params=FILES)
def tasks(request: pytest.FixtureRequest, cases: Callable[[str], Path]) -> list[Task]:
    return load_tasks("bfcl", cases(f"tools/bfcl/{request.param}.jsonl"))


def test_every_accepted_answer_passes(tasks: list[Task]) -> None:
    for task in tasks:
        score = judged(task, reference(task))
        assert (score.status, score.reward) == (ScoreStatus.OK, 1.0), (task.task_id, score.evidence)


def test_every_alternative_passes(tasks: list[Task]) -> None:
    for task in tasks:
        calls = reference(task)
        if not task.hidden.get("alternatives"):
            continue
        for number, want in enumerate(task.hidden["turns"][0]):
            function = next(one for one in task.hidden["functions"] if one["name"] == want["name"])
            required = function["parameters"]["required"]
            for name, options in want["arguments"].items():
                for option in options:
                    if option == "" and name in required:
                        continue  # a required argument is required, whatever the answer allows
                    changed = copy.deepcopy(calls)
                    if option == "":
                        changed[number]["arguments"].pop(name, None)
                    elif not isinstance(option, dict):
                        changed[number]["arguments"][name] = option
                    assert judged(task, changed).reward == 1.0, (task.task_id, name, option)


def test_each_altered_argument_fails(tasks: list[Task]) -> None:
    count = 0
    for task in tasks:
        calls = reference(task)
        nested = bool(calls) and isinstance(calls[0], list)
        turns = calls if nested else [calls]
        for turn, number in [(one, number) for one in turns for number in range(len(one))]:
            kept = turn[number]
            for other in variants(kept):
                turn[number] = other
                reward = judged(task, calls).reward
                assert reward is not None and reward < 1.0, (task.task_id, other)
                assert nested or reward == 0.0
                count += 1
            turn[number] = kept
        left_out = [turns[0][:-1], *turns[1:]] if nested else calls[:-1]
        doubled = [[*turns[0], *turns[0][-1:]], *turns[1:]] if nested else [*calls, calls[-1]]
        for wrong in (left_out, doubled, []):
            assert (judged(task, wrong).reward or 0.0) < 1.0, task.task_id
    assert count > 150


@pytest.mark.parametrize("write", [
    lambda calls: json.dumps([{call["name"]: call["arguments"]} for call in calls]),
    lambda calls: json.dumps([{"type": "function_call", "call_id": str(at), "name": call["name"].replace(".", "_"),
                               "arguments": json.dumps(call["arguments"])} for at, call in enumerate(calls)]),
    lambda calls: json.dumps([{"role": "assistant", "tool_calls": [{"id": str(at), "type": "function", "function": {
        "name": call["name"], "arguments": json.dumps(call["arguments"])}} for at, call in enumerate(calls)]}]),
    lambda calls: "[" + ", ".join(
        f"{call['name']}({', '.join(f'{name}={value!r}' for name, value in call['arguments'].items())})"
        for call in calls) + "]"])
def test_calls_may_be_written_in_any_usual_form(cases: Callable[[str], Path], write: Callable[[Any], str]) -> None:
    for name in ("simple_python", "multiple", "parallel"):
        for task in load_tasks("bfcl", cases(f"tools/bfcl/{name}.jsonl")):
            assert judged(task, write(reference(task))).reward == 1.0, task.task_id


def test_the_order_of_parallel_calls_does_not_count_and_that_of_turns_does(cases: Callable[[str], Path]) -> None:
    for task in load_tasks("bfcl", cases("tools/bfcl/parallel.jsonl")):
        assert judged(task, reference(task)[::-1]).reward == 1.0
    task = load_tasks("bfcl", cases("tools/bfcl/multi_turn_base.jsonl"))[0]
    turns = reference(task)
    assert (judged(task, [turns[0][::-1], *turns[1:]]).reward or 0.0) < 1.0
    assert judged(task, turns[::-1]).reward == 0.0
    looked = judged(task, [[*turns[0], {"name": "ls", "arguments": {}}], *turns[1:]])
    assert (looked.reward, looked.components) == (0.9, {"calls": 1.0, "clean": 0.9})


def test_a_folder_is_imported_whole(cases: Callable[[str], Path]) -> None:
    assert len(load_tasks("bfcl", cases("tools/bfcl"))) == 46


WANTED: dict[str, list[dict[str, Any]]] = {
    "Create a bar chart of total visits since November 30": [
        {"name": "analytics_create_plot", "arguments": {"time_min": "2023-11-30", "time_max": "2023-11-30",
                                                        "value_to_plot": "total_visits", "plot_type": "bar"}}],
    "We need to move all customers": [],
    "Delete Casey Wilson from the crm": [
        {"name": "customer_relationship_manager_delete_customer", "arguments": {"customer_id": "00000014"}}],
    "Add Dakota Thomas as a new lead": [
        {"name": "customer_relationship_manager_add_customer", "arguments": {
            "customer_name": "Dakota Thomas", "assigned_to_email": "nadia.moreau@atlas.com", "status": "Lead"}}],
    "Delete my last email from kofi": [{"name": "email_delete_email", "arguments": {"email_id": "00000259"}}]}
"""What the requests of the recorded rollouts come to; the recording holds their rewards, not the wanted calls."""


def rollouts(cases: Callable[[str], Path]) -> Iterator[tuple[dict[str, Any], Task]]:
    for line in cases("tools/workplace_assistant/example_rollouts.jsonl").read_text().splitlines():
        row = json.loads(line)
        asked = row["responses_create_params"]
        said = asked["input"][-1]["content"]
        wanted, = [calls for start, calls in WANTED.items() if said.startswith(start)]
        hidden = hidden_of(functions_of(asked, "rollout"), wanted)
        yield row, Task(task_id="w", kind="tools", set="s", prompt="p", hidden=hidden)


def test_recorded_rollouts_get_their_rewards_again(cases: Callable[[str], Path]) -> None:
    rewards = [(judged(task, row["response"]["output"]).reward, row["reward"]) for row, task in rollouts(cases)]
    assert len(rewards) == 5 and all(ours == theirs for ours, theirs in rewards)


def test_a_call_needs_exactly_one_result(cases: Callable[[str], Path]) -> None:
    for row, task in rollouts(cases):
        output = row["response"]["output"]
        if row["reward"] != 1.0 or not task.hidden["turns"][0]:
            continue
        result = [item for item in output if item["type"] == "function_call_output"][-1]
        without = [item for item in output if item is not result]
        assert judged(task, without).reward == 0.0 == judged(task, [*output, result]).reward


def test_workplace_tasks_are_solved_by_their_calls_and_by_nothing_else(cases: Callable[[str], Path]) -> None:
    tasks = load_tasks("workplace", cases("tools/workplace_assistant/example.jsonl"))
    assert len(tasks) == 5
    for task in tasks:
        calls = reference(task)
        look = {"name": "email_search_emails", "arguments": {"query": "x"}}
        assert judged(task, calls).reward == 1.0 == judged(task, [look, *calls[::-1], look]).reward
        extra = {"name": "email_delete_email", "arguments": {"email_id": "1"}}
        for wrong in (calls[:-1], [*calls, extra], [*calls, calls[0]], [], ""):
            assert judged(task, wrong).reward == 0.0, task.task_id
        for number, call in enumerate(calls):
            for other in variants(call):
                assert judged(task, [*calls[:number], other, *calls[number + 1:]]).reward == 0.0, other
