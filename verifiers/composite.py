"""The verifier `composite`: weights and gates of a task over other verifiers' verdicts.

`task.hidden.parts`: [{`verifier`, `hidden` (what that verifier reads), `component` (its reward where empty), `weight`,
`gate`, `name`}]. The reward is the weighted sum; weights add up to 1. A part whose value is below its `gate` makes it
0. A part without a verdict leaves the whole without one, whatever the others say: null is not 0. A model's opinion
(verifier `judge`) does not stand alone, unless the task says so (`judge_alone`).
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from schemas.errors import VerifierError
from tasks.task import Submission, Task
from verifiers import registry
from verifiers.contract import checked
from verifiers.digest import code_digest
from verifiers.verifier import Context, Score

NAME, JUDGE = "composite", "judge"
MODULES = ("verifiers.composite", "verifiers.contract")
WEIGHTS_TOLERANCE = 1e-9


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    verifier: str
    hidden: dict[str, Any] = {}
    component: str = ""
    weight: float = 0.0
    gate: float | None = None
    name: str = ""

    @property
    def title(self) -> str:
        return self.name or (f"{self.verifier}.{self.component}" if self.component else self.verifier)


class CompositeHidden(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    parts: list[Part]
    judge_alone: bool = False


class CompositeVerifier:
    name = NAME

    @property
    def digest(self) -> str:
        """Covers every verifier that a task may name."""
        others = {name: registry.get_verifier(name).digest for name in registry.names() if name != NAME}
        return code_digest(MODULES, others)

    def verify(self, submission: Submission, task: Task, context: Context) -> Score:
        hidden = _hidden(task)
        verdicts: dict[bytes, Score] = {}
        values: dict[str, float] = {}
        evidence: dict[str, Any] = {}
        for part in hidden.parts:
            key = msgspec.msgpack.encode([part.verifier, part.hidden], order="deterministic")
            if key not in verdicts:
                verdicts[key] = _verdict(part, submission, task, context)
            score = verdicts[key]
            evidence[part.title] = {"verifier": part.verifier, "status": score.status.value, "reward": score.reward,
                                    "components": dict(score.components), "details": dict(score.evidence)}
            if score.reward is None:
                return Score(status=score.status, evidence={"what": f"{part.title} gave no verdict", **evidence})
            values[part.title] = _value(part, score)
        failed = [part.title for part in hidden.parts if part.gate is not None and values[part.title] < part.gate]
        total = math.fsum(part.weight * values[part.title] for part in hidden.parts)
        return Score(reward=0.0 if failed else min(1.0, max(0.0, total)), components=values,
                     evidence={"failed_gates": failed, "weighted": total, **evidence})


def _hidden(task: Task) -> CompositeHidden:
    where = f"task {task.task_id}"
    try:
        hidden = msgspec.convert(task.hidden, CompositeHidden)
    except msgspec.ValidationError as wrong:
        raise VerifierError(f"the task's hidden part is wrong: {wrong}", where=where) from None
    weights = [part.weight for part in hidden.parts]
    gates = [part.gate for part in hidden.parts if part.gate is not None]
    if not all(math.isfinite(weight) and weight >= 0 for weight in weights) or not all(
            math.isfinite(gate) for gate in gates) or abs(math.fsum(weights) - 1.0) > WEIGHTS_TOLERANCE:
        raise VerifierError("the weights of the parts do not add up to 1", where=f"{where} parts", value=weights)
    if len({part.title for part in hidden.parts}) != len(hidden.parts):
        raise VerifierError("two parts have one name", where=f"{where} parts",
                            value=[part.title for part in hidden.parts])
    counted = {part.verifier for part in hidden.parts if part.weight > 0 or part.gate is not None}
    if NAME in counted or (counted == {JUDGE} and not hidden.judge_alone):
        raise VerifierError("a composite has parts of other kinds, and not only a model's opinion unless it says "
                            "`judge_alone`", where=f"{where} parts", value=sorted(counted))
    return hidden


def _verdict(part: Part, submission: Submission, task: Task, context: Context) -> Score:
    given = {**part.hidden, "judge_alone": True} if part.verifier == JUDGE else part.hidden
    return checked(registry.get_verifier(part.verifier).verify(
        submission, msgspec.structs.replace(task, verifier=part.verifier, hidden=given), context))


def _value(part: Part, score: Score) -> float:
    assert score.reward is not None
    if not part.component:
        return score.reward
    if part.component not in score.components:
        raise VerifierError("the verifier has no such component", where=part.title, value=part.component,
                            hint=f"it has: {', '.join(score.components) or 'none'}")
    value = score.components[part.component]
    if not 0.0 <= value <= 1.0:
        raise VerifierError("a component outside of [0, 1] cannot be weighted", where=part.title, value=value)
    return value
