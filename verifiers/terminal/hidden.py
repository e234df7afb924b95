"""What a terminal task hides: probes, a test script, or both (then each passes or fails on its own, and the reward is
their product)."""

from __future__ import annotations

from typing import Any

import msgspec

from schemas.errors import VerifierError
from tasks.task import Task

KINDS = ("file", "git", "command", "port", "process")
WORKSPACE = "/workspace"


class Script(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A test script that writes a reward to /logs/verifier (Harbor), or says it by its exit code (`by_exit_code`)."""

    entry: str = "test.sh"
    files: dict[str, bytes]
    """The folder `tests/`, seen read-only at /tests."""
    executables: list[str] = []
    environment: dict[str, str] = {}
    timeout_s: float = 600.0
    by_exit_code: bool = False


class TerminalHidden(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    workdir: str = WORKSPACE
    probes: list[dict[str, Any]] = []
    reward: str = "all"
    """Of probes. `all`: 1 only if all hold; `rate`: the weighted share that holds, 0 if one with `gate` does not."""
    script: Script | None = None
    notes: list[str] = []
    """What of the task's own environment is not there; shown in the evidence."""


def hidden_of(task: Task) -> TerminalHidden:
    """Raises VerifierError: a task that cannot be judged is no zero."""
    where = f"task {task.task_id}"
    try:
        hidden = msgspec.convert(task.hidden, TerminalHidden)
    except msgspec.ValidationError as wrong:
        raise VerifierError(f"the task's hidden part is wrong: {wrong}", where=where) from None
    if (not hidden.probes and hidden.script is None) or hidden.reward not in ("all", "rate"):
        raise VerifierError("a terminal task needs probes or a script, and reward `all` or `rate`", where=where)
    if hidden.script and hidden.script.entry not in hidden.script.files:
        raise VerifierError("the test script is not among the test files", where=where, value=hidden.script.entry)
    for number, probe in enumerate(hidden.probes):
        kinds = [kind for kind in KINDS if kind in probe and not (kind == "file" and "git" in probe)]
        if len(kinds) != 1:
            raise VerifierError(f"a probe has exactly one of {', '.join(KINDS)}", where=f"{where} probes[{number}]",
                                value=sorted(probe))
    return hidden
