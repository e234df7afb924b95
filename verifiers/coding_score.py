"""The verdict on a function from what was seen of it: shares, findings against its seed, signs of tampering."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tasks.task import Submission, Task
from verifiers.candidate_runner import look_at
from verifiers.coding_task import CodingHidden
from verifiers.findings import new_findings
from verifiers.tampering import paths_of, seen_in
from verifiers.verifier import Context, Score


class Judged(NamedTuple):
    """What can be said of a submission before it is run."""

    hidden: CodingHidden
    before: Sequence[str] = ()
    """Findings of the seed of its file."""
    signs: Sequence[str] = ()

    def score(self, look: Mapping[str, Any], passed: int, total: int, details: Mapping[str, Any],
              signs: Sequence[str] = ()) -> Score:
        """`signs`: what was seen while it ran."""
        rate = passed / total
        compiles, findings = look.get("compiles") is True, look.get("findings")
        known = compiles and isinstance(findings, list)
        new = new_findings(self.before, map(str, findings or ())) if known else []
        told = sorted({*self.signs, *signs})
        return Score(
            reward=rate if self.hidden.reward == "rate" else float(passed == total), components={
                "tests_passed": rate, "compiles": float(compiles), "static": 1.0 / (1 + len(new)) if known else 0.0,
                "tampering": float(bool(told))},
            evidence={"passed": passed, "total": total, "tampering": told, "new_findings": new[:50], **details})


def read(submission: Submission, task: Task, hidden: CodingHidden, source: bytes, context: Context) -> Judged:
    """The seed of a function in Python is the file that was there, or what the task lets it stand on."""
    seed = task.files.get(hidden.path) or (b"" if hidden.language == "c" else hidden.preamble.encode())
    before = look_at(seed)["findings"] if hidden.language == "python" else ()
    return Judged(hidden, before, seen_in(source, seed, paths_of(submission, context.artifacts), task))
