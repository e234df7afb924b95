"""What a verifier may return, and what becomes of anything else: a verifier error that shows what it was.

Numbers leave here as plain floats. A verifier is somebody's code: nothing that it returns makes these functions raise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any

from schemas.enums import ScoreStatus
from verifiers import evidence
from verifiers.verifier import Score

COMPONENTS_LIMIT = 1000
NAME_LIMIT = 200
"""Characters of a component's name. With the number of components it bounds the event that a score is."""


def failed(status: ScoreStatus, what: str, wrong: BaseException | None = None, **more: Any) -> Score:
    """No verdict, and why."""
    return Score(status=status, evidence={"what": what, **(evidence.trace_of(wrong) if wrong else {}), **more})


def checked(score: object) -> Score:
    """`score` if it keeps the contract, else a verifier error."""
    try:
        return _kept(score)
    except _Broken as wrong:
        return failed(ScoreStatus.VERIFIER_ERROR, str(wrong), returned=evidence.plain(score))
    except Exception as wrong:
        return failed(ScoreStatus.VERIFIER_ERROR, "what the verifier returned cannot be read", wrong)


class _Broken(Exception):
    """The contract is. Its text says where."""


def _kept(score: object) -> Score:
    if not isinstance(score, Score):
        raise _Broken("the verifier returned no Score")
    if not isinstance(score.status, ScoreStatus):
        raise _Broken("the status is none of ScoreStatus")
    if not isinstance(score.components, Mapping) or not isinstance(score.evidence, Mapping):
        raise _Broken("components and evidence must be mappings")
    return Score(status=score.status, reward=_reward(score), components=_components(score.components),
                 evidence=dict(score.evidence))


def _reward(score: Score) -> float | None:
    if score.status != ScoreStatus.OK:
        if score.reward is not None:
            raise _Broken("a reward beside a status that is not ok")
        return None
    reward = _finite(score.reward)
    if reward is None:
        raise _Broken("the reward is not a finite number")
    if not 0.0 <= reward <= 1.0:
        raise _Broken("the reward is outside [0, 1]")
    return reward


def _components(components: Mapping[str, float]) -> dict[str, float]:
    if len(components) > COMPONENTS_LIMIT:
        raise _Broken(f"there are {len(components)} components, over the limit of {COMPONENTS_LIMIT}")
    kept = {}
    for name, value in components.items():
        number = _finite(value)
        if not isinstance(name, str) or len(name) > NAME_LIMIT:
            raise _Broken(f"the name of a component is no text of at most {NAME_LIMIT} characters")
        if number is None:
            raise _Broken(f"component {name!r} is not a finite number")
        kept[str(name)] = number
    return kept


def _finite(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
