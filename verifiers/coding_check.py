"""Functions judged by a task's own `check(candidate)`, in rounds: the check says which calls it needs, the candidate
answers them in its own sandbox, until the check has its verdict.

The candidate's budget is for all rounds: one that is slow on purpose gets a 0, not a verifier out of time, and so does
one whose values keep the check from its end.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

from sandboxes.sandbox import Limits, SandboxSpec
from schemas.errors import VerifierError
from verifiers.bridge import Answers, CheckStuck, Verdict, ask_check
from verifiers.coding_score import Judged
from verifiers.verifier import Context, Score

ROUNDS_LIMIT = 40
Ask = Callable[[list[dict[str, Any]], float], Answers]


def by_check(judged: Judged, ask: Ask, context: Context, end: float) -> Score:
    hidden = judged.hidden
    checking = functools.cache(lambda: context.sandboxes.acquire(
        SandboxSpec(owner="verify:check", limits=Limits(output_kb=4096))))
    outcomes: dict[str, Any] = {}
    said: dict[str, Any] | Verdict = {}
    answers: Answers | None = None
    left_s = hidden.budget_s
    for _ in range(ROUNDS_LIMIT):
        asked = {"preamble": hidden.preamble, "check": hidden.check, "entry": hidden.entry, "outcomes": outcomes,
                 "seed": context.seed}
        try:
            said = ask_check(checking, asked, max(1.0, min(hidden.budget_s, end - time.monotonic())))
        except CheckStuck as stuck:
            assert answers
            return _stuck(judged, answers, str(stuck))
        if isinstance(said, Verdict):
            return _verdict(judged, said, answers, len(outcomes))
        if not said:
            break
        if answers and left_s <= 0:
            outcomes |= {key: {"timeout": True} for key in said}
            continue
        began = time.monotonic()
        answers = ask(list(said.values()), left_s)
        left_s -= time.monotonic() - began
        if answers.load:
            return judged.score(answers.look, 0, 1, details(answers, []), answers.signs)
        outcomes |= dict(zip(said, answers.outcomes, strict=True))
    if answers is None or not said:
        raise VerifierError("the check asks for ever new calls", where="check", value=len(outcomes))
    return _stuck(judged, answers, f"asks for ever new calls ({len(outcomes)})")


def _stuck(judged: Judged, answers: Answers, how: str) -> Score:
    return judged.score(answers.look, 0, 1, {
        **details(answers, []), "check": f"with what the candidate gave, the check {how}"}, answers.signs)


def _verdict(judged: Judged, verdict: Verdict, answers: Answers | None, calls: int) -> Score:
    if answers is None:
        raise VerifierError("the check never called the candidate", where="check")
    told = {**details(answers, verdict.failures), "error": verdict.error, "calls": calls}
    total = verdict.total + (verdict.error is not None)
    return judged.score(answers.look, verdict.passed, total, told, answers.signs)


def details(answers: Answers, failures: list[Any]) -> dict[str, Any]:
    return {"candidate": answers.load or "loaded", "failures": failures, "source": answers.look}
