"""Runs inside the check's sandbox: a task's own `check(candidate)`, with a stand-in for the candidate.

The stand-in answers from a table of outcomes that the candidate gave in *its* sandbox; the candidate's code is never
here, only plain values. A call that is not in the table is noted, and a stand-in value that agrees with everything
lets the check go on, so that one round finds many calls. Only a round without such a value gives a verdict: every
assertion is tallied, and a check that asserted nothing has no verdict. As in `verifiers.values`, no module is imported
that takes long.
"""

from __future__ import annotations

import _ast as ast
import builtins
import sys

from verifiers import values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NEW_CALLS_LIMIT = 2000
SHOWN = 200
HANDED_OUT_LIMIT = USES_LIMIT = 20_000
RAISABLE = frozenset({
    "ArithmeticError", "AssertionError", "AttributeError", "IndexError", "KeyError", "LookupError",
    "NotImplementedError", "OverflowError", "RecursionError", "RuntimeError", "TypeError", "UnicodeError", "ValueError",
    "ZeroDivisionError"})


class CandidateFailed(Exception):
    """The candidate gave no plain value: it raised, died, took too long, or returned what cannot cross."""


class EndOfRound(BaseException):
    """Enough calls for one round."""


class Unknown:
    """Agrees with everything, so that the check goes on to its next call; but not for ever."""

    uses = 0

    def _use(self) -> None:
        Unknown.uses += 1
        if Unknown.uses > USES_LIMIT:
            raise EndOfRound

    def _self(self, *_: Any, **__: Any) -> Any:
        self._use()
        return self

    def _true(self, *_: Any) -> bool:
        self._use()
        return True

    def _zero(self) -> int:
        self._use()
        return 0

    def __float__(self) -> float:
        return float(self._zero())

    def __iter__(self) -> Any:
        return iter(range(self._zero()))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._self()

    __bool__ = __contains__ = _true
    __int__ = __index__ = __len__ = __hash__ = _zero
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _true
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _self
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __and__ = __or__ = __xor__ = _self
    __neg__ = __pos__ = __abs__ = __invert__ = __round__ = __getitem__ = __call__ = _self


class Candidate:
    """The stand-in that `check` is given."""

    def __init__(self, outcomes: dict[str, Any]) -> None:
        self.outcomes = outcomes
        self.new: dict[str, Any] = {}
        self.unknown = self.calls = 0
        self.last = ("", "")
        """The call that was answered last, and how."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        try:
            call = {"args": [values.encode(item) for item in args],
                    "kwargs": {name: values.encode(item) for name, item in kwargs.items()}}
        except values.Unencodable:
            if self.unknown:
                return self._hand_out()
            raise
        key = values.canonical(call)
        if key in self.outcomes:
            self.last = key[:SHOWN], values.text_of(self.outcomes[key])[:SHOWN]
            return give(self.outcomes[key])
        self.new[key] = call
        return self._hand_out()

    def _hand_out(self) -> Unknown:
        self.unknown += 1
        if len(self.new) >= NEW_CALLS_LIMIT or self.unknown > HANDED_OUT_LIMIT:
            raise EndOfRound
        return Unknown()


def give(outcome: dict[str, Any]) -> Any:
    """The value of an outcome; raises what the candidate raised where a check may want to catch it."""
    if "value" in outcome:
        return values.decode(outcome["value"])
    name = outcome.get("raised")
    if name in RAISABLE:
        raise getattr(builtins, name)(outcome.get("message", ""))
    raise CandidateFailed(values.text_of(outcome)[:300])


def tallied(node: Any) -> Any:
    """Every `assert` becomes an entry in the tally: one that fails does not hide the ones after it."""
    for name in node._fields:
        value = getattr(node, name, None)
        if isinstance(value, list):
            value[:] = [_entry(part) if isinstance(part, ast.Assert) else tallied(part) if isinstance(part, ast.AST)
                        else part for part in value]
        elif isinstance(value, ast.AST):
            tallied(value)
    return node


def _entry(node: ast.Assert) -> Any:
    template = parsed(f"try:\n    __tally__.add(CONDITION, {node.lineno})\n"
                      f"except Exception as __wrong__:\n    __tally__.add(False, {node.lineno}, __wrong__)").body[0]
    template.body[0].value.args[0] = node.test
    return template


def parsed(source: str) -> Any:
    return compile(source, "check", "exec", ast.PyCF_ONLY_AST)


def seed_random(request: dict[str, Any]) -> None:
    """Only where it can be in use: importing it takes as long as most checks."""
    if "random" in sys.modules or any("random" in request[part] for part in ("preamble", "check")):
        import random

        random.seed(request["seed"])


class Tally:
    def __init__(self, source: str, candidate: Candidate) -> None:
        self.lines, self.candidate = source.splitlines(), candidate
        self.passed = self.total = 0
        self.failures: list[str] = []

    def add(self, condition: Any, line: int, wrong: Exception | None = None) -> None:
        held = bool(condition)
        self.total += 1
        self.passed += held
        if not held and len(self.failures) < 50:
            asked, gave = self.candidate.last
            self.failures.append(f"line {line}: {self.lines[line - 1].strip()[:SHOWN]} | "
                                 f"{describe(wrong) if wrong else 'is false'} | last call {asked} gave {gave}")


def describe(wrong: BaseException) -> str:
    return f"{type(wrong).__name__}: {wrong}"[:300]


def run_check(request: dict[str, Any]) -> dict[str, Any]:
    """One round: new calls, or the tally, or `broken` where the check itself is at fault."""
    candidate = Candidate(request["outcomes"])
    tally = Tally(request["check"], candidate)
    Unknown.uses = 0
    namespace: dict[str, Any] = {"__name__": "check"}
    seed_random(request)
    error = None
    try:
        exec(compile(request["preamble"], "preamble", "exec"), namespace)
        namespace.update({request["entry"]: candidate, "__tally__": tally})
        exec(compile(tallied(parsed(request["check"])), "check", "exec"), namespace)
        namespace["check"](candidate)
    except EndOfRound:
        pass
    except values.Unencodable as wrong:
        return {"stuck" if request["outcomes"] else "broken": f"the check passes a value that cannot cross: {wrong}"}
    except Exception as wrong:
        error = describe(wrong)
    if candidate.new or candidate.unknown:
        return {"new": candidate.new}
    if not tally.total and request["outcomes"] and "assert" in request["check"]:
        return {"stuck": "comes by no assertion"}
    if not tally.total and (not error or not candidate.calls):
        return {"broken": f"the check asserts nothing ({error or 'and ends'})"}
    return {"passed": tally.passed, "total": tally.total, "failures": tally.failures, "error": error,
            "calls": candidate.calls}


def main(request: dict[str, Any]) -> None:
    out = sys.stdout
    sys.stdout = sys.stderr
    out.write(values.text_of(run_check(request)))
    out.flush()
