"""Makes the model again from the submitted program, in a fresh sandbox, and says how that went.

The file that was handed in is taken away first. What the program prints is the policy's text: only the lines that say
what went wrong are kept, without times and addresses.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from sandboxes.sandbox import ExecResult, Limits, Sandbox, SandboxSpec
from schemas.errors import UnavailableError, VerifierError
from tasks.task import Submission, Task
from verifiers.scene.spec import SceneHidden, Toolchain
from verifiers.scene.toolchains import run_of
from verifiers.submitted import NotSubmitted, read_submitted
from verifiers.verifier import Context

_PROGRAM_LIMIT = 8 << 20
_RESERVE_S = 10.0
"""Of the verdict's time, for what follows the program."""
_LINES_KEPT = 20
_WARNING = re.compile(r"(?i)^(warning|deprecated)\b|\b(user|runtime|deprecation|future)?warning:")
_CHATTER = re.compile(r"cache|rendering time|^(ECHO|Contours|Top level object is a|Total)")
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{6,}")


class Made(NamedTuple):
    sandbox: Sandbox
    """Holds the model, if there is one."""
    gates: dict[str, float]
    """`toolchain`, and `clean`: 1 without a warning."""
    evidence: dict[str, Any]


def make(submission: Submission, task: Task, hidden: SceneHidden, toolchain: Toolchain, context: Context) -> Made:
    """Raises UnavailableError without the toolchain, SandboxError where the sandbox broke, VerifierError where the
    verdict's time is too short for the program's."""
    run = run_of(toolchain, hidden.mesh)
    sandbox = context.sandboxes.acquire(SandboxSpec(
        workspace=submission.workspace, files=task.files if submission.workspace is None else {},
        readonly=run.readonly, environment=run.environment, limits=Limits(memory_mb=run.memory_mb, output_kb=1024),
        owner=f"verify:{task.task_id}", lease_s=max(60.0, 2 * context.deadline_s)))
    if run.probe and (found := sandbox.exec(run.probe)).exit_code != 0:
        raise UnavailableError(f"the sandbox has no {toolchain.name}", where=f"sandbox backend {sandbox.backend}",
                               value=found.exit_code, hint="run verifiers on a backend and an image that have it")
    said: dict[str, Any] = {"name": toolchain.name, "version": run.version}
    if toolchain.program:
        try:
            read_submitted(sandbox, toolchain.program, _PROGRAM_LIMIT)
        except NotSubmitted as wrong:
            return Made(sandbox, {"toolchain": 0.0}, {**said, "problem": str(wrong)})
    sandbox.exec(["rm", "-rf", "--", hidden.mesh])
    deadline_s = min(toolchain.deadline_s, max(1.0, context.deadline_s - _RESERVE_S))
    result = sandbox.exec(run.argv, deadline_s=deadline_s)
    if result.timed_out and deadline_s < toolchain.deadline_s:
        raise VerifierError("the verdict's time is shorter than the program's", where=f"task {task.task_id}",
                            value=context.deadline_s, hint=f"a deadline of {toolchain.deadline_s + _RESERVE_S:g} s")
    warnings, errors = _complaints(result)
    said |= {"exit_code": result.exit_code, "timed_out": result.timed_out, "oom": result.oom,
             "output_limit": result.output_limit, "warnings": warnings, "errors": errors}
    right = result.exit_code == 0 and not (toolchain.hardwarnings and warnings)
    if problem := _problem(result, toolchain, warnings):
        said["problem"] = problem
    return Made(sandbox, {"toolchain": float(right), "clean": float(not warnings)}, said)


def _problem(result: ExecResult, toolchain: Toolchain, warnings: list[str]) -> str:
    if result.timed_out:
        return f"the program did not end within {toolchain.deadline_s:g} s"
    if result.oom:
        return "the program ran out of memory"
    if result.output_limit:
        return "the program printed too much"
    if result.exit_code != 0:
        return f"the program ended with exit code {result.exit_code}"
    return "the program ended with warnings, which this task forbids" if toolchain.hardwarnings and warnings else ""


def _complaints(result: ExecResult) -> tuple[list[str], list[str]]:
    """Warnings, and for a failure the last lines of what it wrote to stderr."""
    text = _ADDRESS.sub("0x...", result.stderr.decode(errors="replace"))
    lines = [line.strip()[:300] for line in text.splitlines() if line.strip()]
    warnings = [line for line in lines if _WARNING.search(line)]
    errors = [line for line in lines if line not in warnings and not _CHATTER.search(line)]
    return warnings[:_LINES_KEPT], errors[-_LINES_KEPT:] if result.exit_code != 0 else []
