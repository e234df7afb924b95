"""Verdicts on functions, in Python or C, computed where the candidate cannot reach.

The candidate runs in a fresh sandbox with arguments alone and returns plain values. Wanted values stay on this side
(`tests`), or in a second sandbox that runs the task's own `check` against those values (`check`). So the known ways to
fool a test run (exit codes, printed summaries, patched test runners, objects equal to everything) have nothing to
act on.

`task.hidden`: `entry`, `language` (`python`, `c`), `path` (default solution.py, solution.c), `reward` (`rate`: share of
the tests passed; `all`: 1 only if all are), `deadline_s` per call, `budget_s` for all calls of a verdict, and either
  `tests`: [{`args`: [encoded], `kwargs`?: {name: encoded}, `want`: encoded, `tolerance`?: number}], or
  `check`: source that defines `check(candidate)`, with `preamble`: source it may rely on.
Encoded: see verifiers.values. A function in C has a `signature`: {`returns`, `args`}, see verifiers.c_types.
Whole repositories, with `task.hidden["repository"]`: see verifiers.repository.
Programs that read and write texts, in Python or C, with `task.hidden["stdio"]`: see verifiers.stdio.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping
from typing import Any

from sandboxes.sandbox import Sandbox
from tasks.task import Submission, Task
from verifiers import repository, stdio, values
from verifiers.bridge import C_CANDIDATE, CANDIDATE, CHECK, Answers, ask_c_candidate, ask_candidate
from verifiers.c_compile import SHARED, compile_c, findings_of
from verifiers.coding_check import by_check, details
from verifiers.coding_score import Judged, read
from verifiers.coding_task import CodingHidden, hidden_of
from verifiers.digest import code_digest
from verifiers.killable import versions
from verifiers.repository_review import LOOK
from verifiers.submitted import NotSubmitted, read_submitted
from verifiers.verifier import Context, Score

MODULES = tuple(sorted({
    "verifiers.coding", "verifiers.coding_check", "verifiers.coding_score", "verifiers.coding_task", "verifiers.bridge",
    "verifiers.c_compile", "verifiers.c_types", "verifiers.findings", "verifiers.program", "verifiers.submitted",
    "verifiers.killable", "verifiers.signs", "verifiers.tampering", *CANDIDATE, *C_CANDIDATE, *CHECK,
    "verifiers.repository", *repository.RUNNER, *repository.HOST, *LOOK, "verifiers.stdio", *stdio.SOURCE_LOOK}))
SOURCE_LIMIT = 1 << 20
GRACE_S = 4.0
"""Between our deadline and that of whoever waits for the verdict."""
_COMPILE_S = 20.0


class CodingVerifier:
    name = "coding"

    @property
    def digest(self) -> str:
        return _digest()

    def verify(self, submission: Submission, task: Task, context: Context) -> Score:
        """Reward, and components `tests_passed`, `compiles`, `static` (1 / (1 + findings that its seed does not have)),
        `tampering` (1 where the submission shows that it was made for its judge; no part of the reward)."""
        if "repository" in task.hidden:
            return repository.verify(submission, task, context)
        if "stdio" in task.hidden:
            return stdio.verify(submission, task, context)
        end = time.monotonic() + context.deadline_s - GRACE_S
        hidden = hidden_of(task)
        candidate = context.open_sandbox(submission, task)
        try:
            source = read_submitted(candidate, hidden.path, SOURCE_LIMIT)
        except NotSubmitted as wrong:
            return Judged(hidden).score({"compiles": False, "findings": []}, 0, 1, {"candidate": str(wrong)})
        judged = read(submission, task, hidden, source, context)
        if hidden.language == "c":
            return _judge_c(judged, task, candidate, end)
        return _judge(judged, candidate, context, end)


@functools.cache
def _digest() -> str:
    return code_digest(MODULES, versions("pytest", "pluggy"))


def _judge(judged: Judged, candidate: Sandbox, context: Context, end: float) -> Score:
    hidden = judged.hidden

    def ask(calls: list[dict[str, Any]], budget_s: float) -> Answers:
        return ask_candidate(candidate, path=hidden.path, entry=hidden.entry, calls=_asked(calls),
                             deadline_s=hidden.deadline_s, budget_s=_within(budget_s, hidden, end))

    if hidden.check:
        return by_check(judged, ask, context, end)
    return _by_tests(judged, ask(hidden.tests, hidden.budget_s))


def _judge_c(judged: Judged, task: Task, candidate: Sandbox, end: float) -> Score:
    hidden = judged.hidden
    assert hidden.signature
    look = compile_c(candidate, hidden.path, min(_COMPILE_S, end - time.monotonic()), SHARED)
    judged = judged._replace(before=findings_of(candidate, task.files.get(hidden.path, b"")))
    if not look["compiles"]:
        return judged.score(look, 0, len(hidden.tests), {"candidate": "does not compile", "source": look})
    answers = ask_c_candidate(candidate, entry=hidden.entry, args=list(hidden.signature.args),
                              returns=hidden.signature.returns, calls=_asked(hidden.tests),
                              deadline_s=hidden.deadline_s, budget_s=_within(hidden.budget_s, hidden, end))
    return _by_tests(judged, answers._replace(look=look))


def _within(budget_s: float, hidden: CodingHidden, end: float) -> float:
    return min(budget_s, max(0.1, end - time.monotonic() - hidden.deadline_s))


def _asked(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"args": call["args"], "kwargs": call.get("kwargs", {})} for call in calls]


def _by_tests(judged: Judged, answers: Answers) -> Score:
    tests = judged.hidden.tests
    failures = [failure for failure in map(_failure, tests, answers.outcomes) if failure]
    return judged.score(answers.look, len(tests) - len(failures), len(tests), details(answers, failures),
                        answers.signs)


def _failure(test: Mapping[str, Any], outcome: Mapping[str, Any]) -> dict[str, Any] | None:
    """None if the test passed, else what was asked, wanted and given."""
    told = {"args": test["args"], **({"kwargs": test["kwargs"]} if test.get("kwargs") else {}), "want": test["want"]}
    if "value" in outcome:
        try:
            got = values.decode(outcome["value"])
        except values.Unencodable as wrong:
            return {**told, "got": {"malformed": str(wrong)}}
        if values.same(got, values.decode(test["want"]), float(test.get("tolerance", 0.0))):
            return None
    return {**told, "got": dict(outcome)}
