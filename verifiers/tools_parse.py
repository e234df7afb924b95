"""The calls that a policy handed in, in whatever usual form: its episode's own calls, or a text.

    [{"name": "f", "arguments": {...}}, ...]      arguments may be JSON in a text
    [{"f": {...}}, ...]                           as answers of BFCL are written
    [f(a=1), g()]                                 Python, literals only; or one call a line
    items of a Responses API, or messages of a chat: calls with ids, and their results
    <tool_call>{"name": "f", "arguments": {...}}</tool_call> ...

Arguments may be called `parameters` or `input`. One fence of Markdown around all of it is taken off. A list of lists is
one list of calls a turn. What is none of these raises Malformed: it is the policy's doing.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import msgspec

from schemas.enums import ToolStatus
from tasks.calls import named_arguments, parse_calls
from tasks.task import Submission

TEXT_LIMIT = 1 << 20
CALLS_LIMIT = 500
_FENCE = re.compile(r"\s*```\w*\s*\n(.*?)\n?```\s*", re.DOTALL)
_TAGGED = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_NAMES = ("arguments", "parameters", "input")


class Malformed(Exception):
    """Its text says what is wrong with the answer."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    arguments: dict[str, Any]
    problem: str = ""
    """Why it cannot be the wanted call, whatever that is."""


Functions = dict[str, list[str]]
"""Names of parameters by function."""


def of_answer(text: str | None, functions: Functions) -> list[list[Call]]:
    """The calls of each turn."""
    if text is None or not text.strip():
        raise Malformed("no calls were handed in")
    if len(text) > TEXT_LIMIT:
        raise Malformed(f"longer than {TEXT_LIMIT} characters")
    text = _bare(text)
    try:
        value = json.loads(text, object_pairs_hook=_once, parse_constant=_constant)
    except (ValueError, RecursionError) as wrong:
        return [_python(text, functions, str(wrong))]
    items = value if isinstance(value, list) else [value]
    nested = bool(items) and all(isinstance(item, list) for item in items)
    turns = [_turn(item, functions) for item in items] if nested else [_turn(items, functions)]
    if sum(map(len, turns)) > CALLS_LIMIT:
        raise Malformed(f"more than {CALLS_LIMIT} calls")
    return turns


def _bare(text: str) -> str:
    """Without the fence around it; calls in tags as a list."""
    if text.count("```") == 2 and (fenced := _FENCE.fullmatch(text)):
        text = fenced[1]
    if 0 < text.count("<tool_call>") <= text.count("</tool_call>") and not _TAGGED.sub("", text).strip():
        text = f"[{', '.join(_TAGGED.findall(text))}]"
    return text


def of_episode(submission: Submission, ignored: tuple[str, ...] = ("done",)) -> list[Call]:
    """The calls that the episode made; one that did not succeed cannot be a wanted one."""
    found = []
    for call in submission.calls[:CALLS_LIMIT]:
        if call.tool in ignored:
            continue
        problem = "" if call.status == ToolStatus.OK else f"it ended as {call.status}"
        try:
            arguments = json.loads(call.arguments or "{}", object_pairs_hook=_once, parse_constant=_constant)
            inner = arguments.get("arguments") if isinstance(arguments, dict) and "tool" in arguments else arguments
            if not isinstance(inner, dict):
                raise ValueError("not an object")
        except (ValueError, RecursionError) as wrong:
            inner, problem = {}, problem or f"its arguments are no JSON object ({wrong})"
        found.append(Call(name=call.tool, arguments=inner, problem=problem))
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands there twice")
    return found


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _python(text: str, functions: Functions, why: str) -> list[Call]:
    try:
        calls = parse_calls(text)
        return [Call(name=call.name, arguments=named_arguments(call, functions.get(call.name, []))) for call in calls]
    except ValueError as wrong:
        raise Malformed(f"neither JSON ({why}) nor Python calls ({wrong})") from None


def _turn(items: list[Any], functions: Functions) -> list[Call]:
    results = Counter(_result_id(item) for item in items)
    with_ids = any(_result_id(item) is not None for item in items)
    calls: list[Call] = []
    seen: Counter[str] = Counter()
    for item in items:
        if isinstance(item, str):
            calls += _python(item, functions, "a text")
            continue
        if not isinstance(item, dict):
            raise Malformed(f"a call is an object, not {str(item)[:80]!r}")
        for raw, call_id in _raw_calls(item):
            call = _call(raw)
            if with_ids and call_id is not None:
                seen[call_id] += 1
                if results[call_id] != 1 or seen[call_id] != 1:
                    problem = f"it has {results[call_id]} results, or its id is not its own"
                    call = msgspec.structs.replace(call, problem=call.problem or problem)
            calls.append(call)
    return calls


def _result_id(item: Any) -> str | None:
    if isinstance(item, dict) and (item.get("type") == "function_call_output" or item.get("role") == "tool"):
        return str(item.get("call_id", item.get("tool_call_id", "")))
    return None


def _raw_calls(item: dict[str, Any]) -> list[tuple[dict[str, Any], str | None]]:
    """The calls of one item, each with its id; none for texts and results."""
    if item.get("type") == "function_call":
        return [(item, str(item["call_id"]) if "call_id" in item else None)]
    if _result_id(item) is not None or item.get("type") in ("message", "reasoning"):
        return []
    if "role" in item:
        given = item.get("tool_calls") or ([item["function_call"]] if item.get("function_call") else [])
        if not isinstance(given, list) or not all(isinstance(call, dict) for call in given):
            raise Malformed("tool_calls is no list of calls")
        return [(call, str(call["id"]) if "id" in call else None) for call in given]
    return [(item, None)]


def _call(raw: dict[str, Any]) -> Call:
    arguments: Any
    inner = raw.get("function")
    given = inner if isinstance(inner, dict) else raw
    if isinstance(given.get("name"), str):
        name, arguments = given["name"], next((given[key] for key in _NAMES if key in given), {})
    elif len(given) == 1:
        (name, arguments), = given.items()
    else:
        raise Malformed(f"a call has a name and arguments, not {str(raw)[:80]!r}")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}", object_pairs_hook=_once, parse_constant=_constant)
        except (ValueError, RecursionError) as wrong:
            return Call(name=name, arguments={}, problem=f"its arguments are not JSON ({wrong})")
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        return Call(name=name, arguments={}, problem="its arguments are no object")
    return Call(name=name, arguments=arguments)
