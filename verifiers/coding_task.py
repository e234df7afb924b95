"""What a task of functions hides, checked before anything is run."""

from __future__ import annotations

from typing import Any

import msgspec

from schemas.errors import VerifierError
from tasks.task import Task
from verifiers.c_types import Signature, fault_of


class CodingHidden(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    entry: str
    language: str = "python"
    path: str = ""
    """Empty: solution.py or solution.c."""
    signature: Signature | None = None
    reward: str = "rate"
    deadline_s: float = 5.0
    budget_s: float = 20.0
    tests: list[dict[str, Any]] = []
    check: str = ""
    preamble: str = ""


def hidden_of(task: Task) -> CodingHidden:
    """Raises VerifierError."""
    where = f"task {task.task_id}"
    try:
        hidden = msgspec.convert(task.hidden, CodingHidden)
    except msgspec.ValidationError as wrong:
        raise VerifierError(f"the task's hidden part is wrong: {wrong}", where=where) from None
    if bool(hidden.tests) == bool(hidden.check) or hidden.reward not in ("rate", "all"):
        raise VerifierError("a coding task needs either tests or a check, and reward `rate` or `all`", where=where)
    if hidden.language not in ("python", "c"):
        raise VerifierError("functions are judged in `python` or `c`", where=where, value=hidden.language)
    if (hidden.language == "c") != (hidden.signature is not None):
        raise VerifierError("a function in C needs its signature, and one in Python none", where=where)
    fault = fault_of(hidden.signature, [test.get("args", []) for test in hidden.tests]) if hidden.signature else None
    if fault:
        raise VerifierError(f"the signature is wrong: {fault}", where=where, hint="args and returns name C types")
    return msgspec.structs.replace(hidden, path=hidden.path or (
        "solution.c" if hidden.language == "c" else "solution.py"))
