"""The host's side of function tests: asks the candidate's sandbox and the check's sandbox, and believes neither more
than it must.

What comes from the candidate's sandbox is parsed as untrusted text: an outcome that is missing, twice there or
malformed is a call without a value. What comes from the check's sandbox is trusted, but for its resources: a check
that does not end before it has seen a value of the candidate's is the verifier's fault; later it is the candidate's.
"""

from __future__ import annotations

import hashlib
import json
import signal
from collections.abc import Callable
from typing import Any, NamedTuple

from sandboxes.sandbox import ExecResult, Sandbox
from schemas.errors import VerifierError
from verifiers.c_compile import BINARY
from verifiers.program import ENVIRONMENT, call

CANDIDATE = ("verifiers.values", "verifiers.candidate_runner")
C_CANDIDATE = (*CANDIDATE, "verifiers.c_runner")
CHECK = ("verifiers.values", "verifiers.check_runner")
NO_VALUE = {"died": True}
_FORGED = ("something else wrote among the answers",)
_INDEX_DIGITS = 10
_ALARMED = 128 + signal.SIGALRM
START_S = 5.0
"""What an interpreter may take to start on a busy machine, on top of the budget of the calls."""


class Answers(NamedTuple):
    """What the candidate said. `load` is why it has no function; None when it has one."""

    look: dict[str, Any]
    load: str | None
    outcomes: list[dict[str, Any]]
    signs: tuple[str, ...] = ()
    """Of tampering, seen while it ran."""


def ask_candidate(sandbox: Sandbox, *, path: str, entry: str, calls: list[dict[str, Any]], deadline_s: float,
                  budget_s: float) -> Answers:
    """Run every call in the candidate's sandbox; one outcome per call, in order."""
    argv, stdin = call(*CANDIDATE, path=path, entry=entry, calls=calls, deadline_s=deadline_s, budget_s=budget_s)
    result = sandbox.exec(argv, stdin=stdin, environment=ENVIRONMENT, deadline_s=deadline_s + budget_s + START_S)
    return read_answers(result, len(calls))


def ask_c_candidate(sandbox: Sandbox, *, entry: str, args: list[str], returns: str, calls: list[dict[str, Any]],
                    deadline_s: float, budget_s: float) -> Answers:
    """The same of a shared library that was compiled there."""
    argv, stdin = call(*C_CANDIDATE, path=BINARY, entry=entry, args=args, returns=returns, calls=calls,
                       deadline_s=deadline_s, budget_s=budget_s)
    result = sandbox.exec(argv, stdin=stdin, environment=ENVIRONMENT, deadline_s=deadline_s + budget_s + START_S)
    return read_answers(result, len(calls))


def read_answers(result: ExecResult, calls: int) -> Answers:
    """The records of the runner. Only the first line was written before the candidate's code could run."""
    first, *lines = result.stdout.split(b"\n")
    look = _record(first) or {"compiles": False, "error": "said nothing", "findings": []}
    loads = [record["load"] for record in map(_record, lines) if record and "load" in record]
    if not loads:
        return Answers(look, _silence(result), [NO_VALUE] * calls, _ended_itself(result))
    if loads[0] is not None:
        return Answers(look, str(loads[0])[:300], [NO_VALUE] * calls, _FORGED if len(loads) > 1 else ())
    found: dict[int, dict[str, Any]] = {}
    lines_of_ours = len(loads)
    for line in lines:
        index, _, said = line.partition(b" ")
        if index.isdigit() and len(index) < _INDEX_DIGITS:
            lines_of_ours += int(index) < calls and int(index) not in found
            found[int(index)] = NO_VALUE if int(index) in found else _outcome(_record(said) or {})
    forged = len(loads) > 1 or lines_of_ours != sum(map(bool, lines))
    return Answers(look, None, [found.get(index, _lost(result)) for index in range(calls)],
                   _FORGED if forged and not result.truncated else ())


def _ended_itself(result: ExecResult) -> tuple[str, ...]:
    return ("its process was ended from within while it was loaded",) if result.exit_code == 0 else ()


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _outcome(record: dict[str, Any]) -> dict[str, Any]:
    if "value" in record:
        return {"value": record["value"]}
    for name in ("raised", "unencodable"):
        if isinstance(record.get(name), str):
            return {name: record[name][:100], "message": str(record.get("message", ""))[:300]}
    return {"timeout": True} if record.get("timeout") else NO_VALUE


def _lost(result: ExecResult) -> dict[str, Any]:
    return {"timeout": True} if result.timed_out else {"output_limit": True} if result.truncated else NO_VALUE


def _silence(result: ExecResult) -> str:
    if result.timed_out or result.exit_code == _ALARMED:
        return "did not load in time"
    return "out of memory while loading" if result.oom else f"ended while loading (exit code {result.exit_code})"


class CheckStuck(Exception):
    """The check, which ended well without values of the candidate's, does not with them."""


class Verdict(NamedTuple):
    passed: int
    total: int
    failures: list[str]
    error: str | None


_FIRST_KEPT = 128
_FIRST_BYTES = 256 << 10
_first: dict[bytes, bytes] = {}
"""What checks said in their first round, which hangs on no candidate: the next verdict on the task need not ask."""


def ask_check(open_sandbox: Callable[[], Sandbox], asked: dict[str, Any],
              deadline_s: float) -> dict[str, Any] | Verdict:
    """One round of the check: its new calls by key, or its verdict. Raises VerifierError if the check is at fault,
    CheckStuck if what the candidate gave is."""
    argv, stdin = call(*CHECK, request=asked)
    key = b"" if asked["outcomes"] else hashlib.sha256(stdin).digest()
    text = _first.get(key) or _said(open_sandbox(), argv, stdin, deadline_s, bool(asked["outcomes"]))
    said = json.loads(text)
    if "stuck" in said:
        raise CheckStuck(said["stuck"])
    if "broken" in said:
        raise VerifierError(said["broken"], where="check", hint="the task is at fault, not the candidate")
    if "new" not in said:
        return Verdict(said["passed"], said["total"], said["failures"], said["error"])
    if key and len(text) <= _FIRST_BYTES:
        if len(_first) >= _FIRST_KEPT:
            _first.clear()
        _first[key] = text
    new: dict[str, Any] = said["new"]
    return new


def _said(sandbox: Sandbox, argv: list[str], stdin: bytes, deadline_s: float, with_values: bool) -> bytes:
    result = sandbox.exec(argv, stdin=stdin, environment=ENVIRONMENT, deadline_s=deadline_s)
    if result.timed_out or result.oom or result.truncated or result.exit_code != 0:
        if with_values:
            raise CheckStuck("does not end in time" if result.timed_out else "runs out of memory" if result.oom
                             else "writes without end" if result.truncated else f"ends with {result.exit_code}")
        raise VerifierError("the check did not end well", where="check sandbox", value={
            "timed_out": result.timed_out, "oom": result.oom, "truncated": result.truncated,
            "exit_code": result.exit_code, "stderr": result.stderr[-500:].decode(errors="replace")})
    return result.stdout
