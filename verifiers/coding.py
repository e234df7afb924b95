"""Verdicts on Python functions, computed where the candidate cannot reach.

The candidate runs in a fresh sandbox with arguments alone and returns plain values. Wanted values stay on this side
(`tests`), or in a second sandbox that runs the task's own `check` against those values (`check`). So the known ways to
fool a test run (exit codes, printed summaries, patched test runners, objects equal to everything) have nothing to
act on.

`task.hidden`: `entry`, `path` (default solution.py), `reward` (`rate`: share of the tests passed; `all`: 1 only if all
are), `deadline_s` per call, `budget_s` for all calls of a verdict, and either
  `tests`: [{`args`: [encoded], `kwargs`?: {name: encoded}, `want`: encoded, `tolerance`?: number}], or
  `check`: source that defines `check(candidate)`, with `preamble`: source it may rely on.
Encoded: see verifiers.values. Whole repositories, with `task.hidden["repository"]`: see verifiers.repository.
Programs that read and write texts, in Python or C, with `task.hidden["stdio"]`: see verifiers.stdio.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from sandboxes.sandbox import Limits, Sandbox, SandboxSpec
from schemas.errors import VerifierError
from tasks.task import Submission, Task
from verifiers import repository, stdio, values
from verifiers.bridge import CANDIDATE, CHECK, Answers, Verdict, ask_candidate, ask_check
from verifiers.digest import code_digest
from verifiers.repository_review import LOOK
from verifiers.submitted import NotSubmitted, read_submitted
from verifiers.verifier import Context, Score

MODULES = ("verifiers.coding", "verifiers.bridge", "verifiers.program", "verifiers.submitted", *CANDIDATE, *CHECK,
           "verifiers.repository", *repository.RUNNER, *repository.HOST, *LOOK, "verifiers.stdio", *stdio.SOURCE_LOOK)
SOURCE_LIMIT = 1 << 20
ROUNDS_LIMIT = 40


class CodingHidden(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    entry: str
    path: str = "solution.py"
    reward: str = "rate"
    deadline_s: float = 5.0
    budget_s: float = 20.0
    tests: list[dict[str, Any]] = []
    check: str = ""
    preamble: str = ""


class CodingVerifier:
    name = "coding"

    @property
    def digest(self) -> str:
        return code_digest(MODULES)

    def verify(self, submission: Submission, task: Task, context: Context) -> Score:
        """Reward, and components `tests_passed`, `compiles`, `static` (1 / (1 + findings))."""
        if "repository" in task.hidden:
            return repository.verify(submission, task, context)
        if "stdio" in task.hidden:
            return stdio.verify(submission, task, context)
        hidden = _hidden(task)
        candidate = context.open_sandbox(submission, task)
        try:
            read_submitted(candidate, hidden.path, SOURCE_LIMIT)
        except NotSubmitted as wrong:
            return _score(hidden, {"compiles": False, "findings": []}, 0, 1, {"candidate": str(wrong)})
        if hidden.check:
            return _by_check(hidden, candidate, context)
        answers = _ask(hidden, candidate, hidden.tests, hidden.budget_s)
        failures = [failure for failure in map(_failure, hidden.tests, answers.outcomes) if failure]
        total = len(hidden.tests)
        return _score(hidden, answers.look, total - len(failures), total, _details(answers, failures))


def _hidden(task: Task) -> CodingHidden:
    try:
        hidden = msgspec.convert(task.hidden, CodingHidden)
    except msgspec.ValidationError as wrong:
        raise VerifierError(f"the task's hidden part is wrong: {wrong}", where=f"task {task.task_id}") from None
    if bool(hidden.tests) == bool(hidden.check) or hidden.reward not in ("rate", "all"):
        raise VerifierError("a coding task needs either tests or a check, and reward `rate` or `all`",
                            where=f"task {task.task_id}")
    return hidden


def _ask(hidden: CodingHidden, sandbox: Sandbox, calls: list[dict[str, Any]], budget_s: float) -> Answers:
    asked = [{"args": call["args"], "kwargs": call.get("kwargs", {})} for call in calls]
    return ask_candidate(sandbox, path=hidden.path, entry=hidden.entry, calls=asked, deadline_s=hidden.deadline_s,
                         budget_s=budget_s)


def _failure(test: Mapping[str, Any], outcome: Mapping[str, Any]) -> dict[str, Any] | None:
    """None if the test passed, else what was asked and what came; the wanted value is not repeated."""
    if "value" in outcome:
        try:
            got = values.decode(outcome["value"])
        except values.Unencodable as wrong:
            return {"args": test["args"], "got": {"malformed": str(wrong)}}
        if values.same(got, values.decode(test["want"]), float(test.get("tolerance", 0.0))):
            return None
    return {"args": test["args"], "got": dict(outcome)}


def _by_check(hidden: CodingHidden, candidate: Sandbox, context: Context) -> Score:
    """Rounds: the check says which calls it needs, the candidate answers them, until the check has its verdict.

    The candidate's budget is for all rounds: one that is slow on purpose gets a 0, not a verifier out of time.
    """
    checking = functools.cache(lambda: context.sandboxes.acquire(
        SandboxSpec(owner="verify:check", limits=Limits(output_kb=4096))))
    outcomes: dict[str, Any] = {}
    answers: Answers | None = None
    left_s = hidden.budget_s
    for _ in range(ROUNDS_LIMIT):
        said = ask_check(checking, {"preamble": hidden.preamble, "check": hidden.check, "entry": hidden.entry,
                                    "outcomes": outcomes, "seed": context.seed}, hidden.budget_s)
        if isinstance(said, Verdict):
            return _by_verdict(hidden, said, answers, len(outcomes))
        if not said:
            break
        if answers and left_s <= 0:
            outcomes |= {key: {"timeout": True} for key in said}
            continue
        began = time.monotonic()
        answers = _ask(hidden, candidate, list(said.values()), left_s)
        left_s -= time.monotonic() - began
        if answers.load:
            return _score(hidden, answers.look, 0, 1, _details(answers, []))
        outcomes |= dict(zip(said, answers.outcomes, strict=True))
    raise VerifierError("the check asks for ever new calls", where="check", value=len(outcomes))


def _by_verdict(hidden: CodingHidden, verdict: Verdict, answers: Answers | None, calls: int) -> Score:
    if answers is None:
        raise VerifierError("the check never called the candidate", where="check")
    details = {**_details(answers, verdict.failures), "error": verdict.error, "calls": calls}
    total = verdict.total + (verdict.error is not None)
    return _score(hidden, answers.look, verdict.passed, total, details)


def _details(answers: Answers, failures: list[Any]) -> dict[str, Any]:
    return {"candidate": answers.load or "loaded", "failures": failures, "source": answers.look}


def _score(hidden: CodingHidden, look: Mapping[str, Any], passed: int, total: int, details: dict[str, Any]) -> Score:
    rate = passed / total
    findings = look.get("findings")
    compiles = look.get("compiles") is True
    components = {
        "tests_passed": rate, "compiles": float(compiles),
        "static": 1.0 / (1 + len(findings)) if compiles and isinstance(findings, list) else 0.0}
    reward = rate if hidden.reward == "rate" else float(passed == total)
    return Score(reward=reward, components=components, evidence={"passed": passed, "total": total, **details})
