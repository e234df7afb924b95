"""The verifier `calls`: chains of tool calls against those that a task wants, and the state that they left.

reward = base x `clean`, where base is `state` if the task has probes of the final state, else `calls`: what the calls
brought about outranks how they look. `clean` = `extra_factor` for each call that nobody wanted or that is malformed.
`calls`: the share of wanted calls that were made, in the task's order; with reward `all` it is 1 or 0.

`task.hidden`: `functions` [{name, parameters: JSON schema}], `turns`: for each turn the wanted calls [{name,
arguments}], where arguments are values, or lists of alternatives with `alternatives` (`""` among them: may be left
out); `order` exact | subsequence | set | graph, `edges` [[i, j], ...] for graph; `text` exact | fold | loose,
`exact_arguments`; `counted`: only calls of these functions count (others read); `source` answer | episode; `state`:
probes of the workspace, see verifiers.terminal.probes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from schemas.errors import VerifierError
from tasks.task import Submission, Task
from verifiers.digest import code_digest
from verifiers.terminal import probes
from verifiers.tools_match import ORDERS, TEXTS, fits, matched, same, topological
from verifiers.tools_parse import Call, Malformed, of_answer, of_episode
from verifiers.tools_schema import defaults_of, problem_of
from verifiers.tools_wanted import fitted
from verifiers.verifier import Context, Score

MODULES = ("verifiers.tools_calls", "verifiers.tools_match", "verifiers.tools_parse", "verifiers.tools_schema",
           "verifiers.tools_wanted", "tasks.calls", "verifiers.terminal", "verifiers.terminal.probes",
           "verifiers.terminal.inside", "verifiers.program")


class CallsHidden(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    functions: list[dict[str, Any]] = []
    turns: list[list[dict[str, Any]]]
    order: str = "exact"
    edges: list[tuple[int, int]] = []
    alternatives: bool = False
    text: str = "exact"
    exact_arguments: list[str] = []
    counted: list[str] | None = None
    source: str = "answer"
    reward: str = "all"
    extra_factor: float = 0.9
    state: list[dict[str, Any]] = []


class CallsVerifier:
    name = "calls"

    @property
    def digest(self) -> str:
        return code_digest(MODULES)

    def verify(self, submission: Submission, task: Task, context: Context) -> Score:
        hidden = _hidden(task)
        components: dict[str, float] = {}
        evidence: dict[str, Any] = {}
        base = None
        if hidden.state:
            verdicts = probes.check(hidden.state, context.open_sandbox(submission, task), "/workspace")
            base = components["state"] = probes.share(hidden.state, verdicts, hidden.reward)
            evidence["state"] = verdicts
        try:
            judged = _judge(hidden, _turns(hidden, submission))
        except Malformed as wrong:
            judged = {"calls": 0.0, "clean": hidden.extra_factor if base is not None else 0.0}, {"problem": str(wrong)}
        components |= judged[0]
        reward = (components["calls"] if base is None else base) * components["clean"]
        return Score(reward=reward, components=components, evidence={**evidence, **judged[1]})


def _hidden(task: Task) -> CallsHidden:
    where = f"task {task.task_id}"
    try:
        hidden = msgspec.convert(task.hidden, CallsHidden)
        count = sum(map(len, hidden.turns))
        before = {at: [i for i, j in hidden.edges if j == at] for at in range(count)}
        topological(before)
    except (msgspec.ValidationError, ValueError) as wrong:
        raise VerifierError(f"the task's hidden part is wrong: {wrong}", where=where) from None
    known = (hidden.order in ORDERS and hidden.text in TEXTS and hidden.source in ("answer", "episode")
             and hidden.reward in ("all", "rate") and 0.0 <= hidden.extra_factor <= 1.0)
    edges = all(0 <= i < count and 0 <= j < count for i, j in hidden.edges)
    graph = not hidden.edges or (hidden.order == "graph" and len(hidden.turns) == 1)
    wanted = all({"name", "arguments"} == set(call) and isinstance(call["arguments"], dict)
                 for turn in hidden.turns for call in turn)
    if not (known and edges and graph and wanted):
        raise VerifierError("the task's hidden part is wrong: an order, text, source, reward, edge or wanted call is "
                            "not what it may be", where=where)
    return hidden


def _turns(hidden: CallsHidden, submission: Submission) -> list[list[Call]]:
    if hidden.source == "episode":
        return [of_episode(submission)]
    names = {function["name"]: list(function.get("parameters", {}).get("properties", {}))
             for function in hidden.functions}
    turns = of_answer(submission.answer, names)
    if len(hidden.turns) == 1:
        return [[call for turn in turns for call in turn]]
    if len(turns) != len(hidden.turns):
        raise Malformed(f"{len(turns)} turns of calls, where {len(hidden.turns)} were asked for")
    return turns


def _judge(hidden: CallsHidden, turns: list[list[Call]]) -> tuple[dict[str, float], dict[str, Any]]:
    documented = {function["name"]: function.get("parameters", {}) for function in hidden.functions}
    every = [want for turn in hidden.turns for want in turn]
    schemas, overruled = fitted(documented, every, hidden.alternatives)
    wanted_count = found_count = extra_count = 0
    rows = []
    for wanted, raw in zip(hidden.turns, turns, strict=True):
        got = [_checked(call, schemas) for call in raw]
        counts = [call for call in got if _counts(hidden, call, schemas)]
        matrix = [[_is(hidden, call, want, schemas.get(call.name)) for call in counts] for want in wanted]
        places = matched(hidden.order, matrix, hidden.edges)
        found = sum(place is not None for place in places)
        wanted_count, found_count = wanted_count + len(wanted), found_count + found
        extra_count += len(counts) - found
        rows.append({"wanted": [{**want, "found": place} for want, place in zip(wanted, places, strict=True)],
                     "got": [_row(call, at in places) for at, call in enumerate(counts)],
                     "not_counted": len(got) - len(counts)})
    rate = found_count / wanted_count if wanted_count else 1.0
    calls = rate if hidden.reward == "rate" else float(found_count == wanted_count)
    evidence = {"turns": rows, "extra": extra_count}
    if overruled:
        evidence["schemas_overruled_by_wanted_calls"] = overruled
    return {"calls": calls, "clean": hidden.extra_factor**extra_count}, evidence


def _counts(hidden: CallsHidden, call: Call, schemas: Mapping[str, Any]) -> bool:
    return hidden.counted is None or call.name in hidden.counted or call.name not in schemas


def _row(call: Call, is_wanted: bool) -> dict[str, Any]:
    row = {"name": call.name, "arguments": call.arguments, "wanted": is_wanted}
    return {**row, "problem": call.problem} if call.problem else row


def _checked(call: Call, schemas: Mapping[str, Any]) -> Call:
    """With its real name, and what is wrong with its arguments."""
    if not schemas or call.problem:
        return call
    name = call.name
    if name not in schemas:  # names with dots are not allowed in some interfaces, which write `_` for them
        close = [known for known in schemas if known.replace(".", "_") == name]
        if len(close) != 1:
            return msgspec.structs.replace(call, problem="there is no such function")
        name = close[0]
    problem = problem_of(call.arguments, schemas[name]) or ""
    return msgspec.structs.replace(call, name=name, problem=problem)


def _is(hidden: CallsHidden, call: Call, want: Mapping[str, Any], schema: Any) -> bool:
    """An argument that is left out has the value that its schema gives as default."""
    if call.problem or call.name != want["name"]:
        return False
    text: Callable[[str], str] = TEXTS[hidden.text]
    strict, defaults = set(hidden.exact_arguments), defaults_of(schema)
    if hidden.alternatives:
        given = {name: value for name, value in call.arguments.items()
                 if name in want["arguments"] or name not in defaults or not same(value, defaults[name], text)}
        return fits(given, want["arguments"], text) or fits(
            {**{name: value for name, value in defaults.items() if name in want["arguments"]}, **given},
            want["arguments"], text)
    got, wanted = {**defaults, **call.arguments}, {**defaults, **want["arguments"]}
    return got.keys() == wanted.keys() and all(
        same(got[name], value, TEXTS["exact"] if name in strict else text) for name, value in wanted.items())
