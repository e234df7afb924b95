"""Verdicts on programs that read a text and write one, in Python or C. Wanted texts never enter the sandbox.

Each test is a process of its own that sees its input alone; all that it can do to be right is to write the right text.
Texts are compared word by word: the kind and number of blanks and line breaks do not count, case does. A wanted word
with a decimal point or an exponent is a number and met within `tolerance` (absolute or relative); all others, whole
numbers among them, must be the same text. A program that fails after writing the right text has not passed.

`task.hidden["stdio"]`: `tests` [{`input`, `output`}], `language` (`python`, `c`), `path`, `reward` (`rate`, `all`),
`tolerance`, `deadline_s` per test, `budget_s` for all.
"""

from __future__ import annotations

import json
import math
import time
from typing import Any

import msgspec

from sandboxes.sandbox import ExecResult, Sandbox
from schemas.errors import VerifierError
from tasks.task import Submission, Task
from verifiers.c_compile import BINARY, compile_c, findings_of
from verifiers.candidate_runner import look_at
from verifiers.findings import SCALE, new_findings
from verifiers.program import ENVIRONMENT, FLAGS, call
from verifiers.signs import OF_PROGRAMS
from verifiers.submitted import NotSubmitted, read_submitted
from verifiers.tampering import paths_of, seen_in
from verifiers.verifier import Context, Score

SOURCE_LOOK = ("verifiers.values", "verifiers.candidate_runner", "verifiers.source_look")
SOURCE_LIMIT = 1 << 20
SHOWN = 300
_PROGRAM_FLAGS = tuple(flag for flag in FLAGS if flag != "-S")
"""With the site, which brings `exit()` and `quit()`."""
_COMPILE_S = 20.0
_GRACE_S = 4.0


class Test(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    input: str
    output: str


class StdioHidden(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tests: list[Test]
    language: str = "python"
    path: str = "solution.py"
    reward: str = "rate"
    tolerance: float = 1e-6
    deadline_s: float = 5.0
    budget_s: float = 40.0


def verify(submission: Submission, task: Task, context: Context) -> Score:
    """Reward, and components `tests_passed`, `compiles`, `static` (e to minus a tenth of the findings that the seed of
    the file does not have), `tampering`."""
    hidden = _hidden(task)
    until = time.monotonic() + context.deadline_s - _GRACE_S
    sandbox = context.open_sandbox(submission, task)
    try:
        source = read_submitted(sandbox, hidden.path, SOURCE_LIMIT)
    except NotSubmitted as wrong:
        return _score(hidden, {"compiles": False, "findings": [], "error": str(wrong)}, [], 0, [])
    seed = task.files.get(hidden.path, b"")
    look = _look(sandbox, hidden, seed, min(_COMPILE_S, until - time.monotonic()))
    told = seen_in(source, seed, paths_of(submission, context.artifacts), task, OF_PROGRAMS)
    if not look["compiles"]:
        return _score(hidden, look, told, 0, [])
    argv = [BINARY] if hidden.language == "c" else ["python3", *_PROGRAM_FLAGS, hidden.path]
    end = min(until, time.monotonic() + hidden.budget_s)
    passed, failures = 0, []
    for test in hidden.tests:
        why = _fault(sandbox, argv, test, hidden, end - time.monotonic())
        passed += why is None
        if why is not None:
            failures.append({"input": test.input[:SHOWN], **why})
    return _score(hidden, look, told, passed, failures)


def _hidden(task: Task) -> StdioHidden:
    where = f"task {task.task_id}"
    try:
        hidden = msgspec.convert(task.hidden["stdio"], StdioHidden)
    except msgspec.ValidationError as wrong:
        raise VerifierError(f"the task's hidden part is wrong: {wrong}", where=where) from None
    if not hidden.tests or hidden.reward not in ("rate", "all") or hidden.language not in ("python", "c"):
        raise VerifierError("a task of programs needs tests, reward `rate` or `all`, and language `python` or `c`",
                            where=where)
    return hidden


def _look(sandbox: Sandbox, hidden: StdioHidden, seed: bytes, deadline_s: float) -> dict[str, Any]:
    """Whether it compiles, and findings that its seed does not have."""
    if hidden.language == "c":
        before, look = findings_of(sandbox, seed), compile_c(sandbox, hidden.path, deadline_s)
    else:
        before, look = look_at(seed)["findings"], _look_at_python(sandbox, hidden)
    return {**look, "findings": new_findings(before, look["findings"])}


def _look_at_python(sandbox: Sandbox, hidden: StdioHidden) -> dict[str, Any]:
    argv, stdin = call(*SOURCE_LOOK, path=hidden.path)
    said = sandbox.exec(argv, stdin=stdin, environment=ENVIRONMENT, deadline_s=10.0)
    if said.exit_code != 0:
        return {"compiles": False, "findings": [], "error": "the parser did not survive it"}
    look: dict[str, Any] = json.loads(said.stdout)
    return look


def _fault(sandbox: Sandbox, argv: list[str], test: Test, hidden: StdioHidden, left_s: float) -> dict[str, Any] | None:
    """None if the test passed, else why not, with what was wanted and given."""
    if left_s <= 0:
        return {"why": "no time was left"}
    ran = sandbox.exec(argv, stdin=test.input.encode(), environment=ENVIRONMENT,
                       deadline_s=min(hidden.deadline_s, left_s))
    why = _ending(ran)
    if why is None and same_text(ran.stdout.decode(errors="replace"), test.output, hidden.tolerance):
        return None
    return {"why": why or "wrong output", "want": test.output[:SHOWN],
            "output": ran.stdout[:SHOWN].decode(errors="replace"),
            "stderr": ran.stderr[-SHOWN:].decode(errors="replace")}


def _ending(ran: ExecResult) -> str | None:
    for flag, what in ((ran.timed_out, "too slow"), (ran.oom, "out of memory"), (ran.truncated, "too much output")):
        if flag:
            return what
    return None if ran.exit_code == 0 else f"exit code {ran.exit_code}"


def same_text(got: str, want: str, tolerance: float = 0.0) -> bool:
    words, wanted = got.split(), want.split()
    return len(words) == len(wanted) and all(
        word == other or _same_number(word, other, tolerance) for word, other in zip(words, wanted, strict=True))


def _same_number(word: str, wanted: str, tolerance: float) -> bool:
    if tolerance <= 0 or not any(mark in wanted for mark in ".eE") or len(word) > SHOWN or "_" in word:
        return False
    try:
        one, other = float(word), float(wanted)
    except ValueError:
        return False
    return math.isfinite(one) and math.isclose(one, other, rel_tol=tolerance, abs_tol=tolerance)


def _score(hidden: StdioHidden, look: dict[str, Any], told: list[str], passed: int,
           failures: list[dict[str, Any]]) -> Score:
    total = len(hidden.tests)
    rate = passed / total
    static = math.exp(-len(look["findings"]) / SCALE) if look["compiles"] else 0.0
    return Score(reward=rate if hidden.reward == "rate" else float(passed == total), components={
        "tests_passed": rate, "compiles": float(look["compiles"]), "static": static,
        "tampering": float(bool(told))}, evidence={
        "passed": passed, "total": total, "failures": failures[:50], "tampering": told, "source": look})
