"""Terminal predicates: when is an episode over because the task says so. Pure; named in a task's `terminal`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from schemas.enums import ToolStatus
from schemas.errors import TaskError
from tasks.task import SubmittedCall

Predicate = Callable[[Sequence[SubmittedCall]], bool]


def done(calls: Sequence[SubmittedCall]) -> bool:
    """The policy called `done`, and the call was accepted."""
    return bool(calls) and calls[-1].tool == "done" and calls[-1].status == ToolStatus.OK


PREDICATES: dict[str, Predicate] = {"done": done}


def predicate(name: str) -> Predicate:
    try:
        return PREDICATES[name]
    except KeyError:
        raise TaskError("unknown terminal predicate", where="$.terminal", value=name,
                        hint=f"one of {', '.join(PREDICATES)}") from None
