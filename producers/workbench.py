"""The sandbox of one attempt at an episode, and what a tool call in it came to.

A call's own failures are outcomes with a status. SandboxError leaves where no sandbox can be had: there the attempt
cannot go on. A sandbox that broke in a call is replaced by a fresh one with the workspace as it was before the call.
A call that leaves a workspace too large for a snapshot is the policy's doing: it is told so, and the call is undone.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

import msgspec

from artifacts.store import ArtifactStore
from producers.dialects import dialect
from producers.tools import Command, Tool
from sandboxes.sandbox import Backend, ExecResult, Limits, Sandbox
from sandboxes.wanted import spec_for
from schemas.enums import ToolStatus
from schemas.errors import SandboxError
from schemas.events import ArtifactRef, SandboxInfo
from schemas.settings import Settings
from tasks import TOOLBOX_MOUNT, toolbox_path
from tasks.task import Task

_Result = TypeVar("_Result")


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a call came to; `shown` is what the policy sees, `workspace` null where nothing changed."""

    status: ToolStatus
    shown: str = ""
    exit_code: int | None = None
    output_bytes: int = 0
    truncated: bool = False
    output_ref: ArtifactRef | None = None
    workspace: str | None = None
    duration_s: float = 0.0
    failure_kind: str = ""


def limits_of(settings: Settings) -> Limits:
    return Limits(memory_mb=settings.sandbox_memory_mb, pids=settings.sandbox_pids, file_mb=settings.sandbox_file_mb,
                  output_kb=settings.sandbox_output_kb)


def sandbox_info(backend: Backend, settings: Settings, task: Task | None) -> SandboxInfo:
    """What the event says of it. Raises SandboxError (kind `image`) for an image that cannot be used."""
    given = msgspec.structs.asdict(limits_of(settings))
    return SandboxInfo(
        backend=backend.name, limits={name: float(value) for name, value in given.items() if value is not None},
        image=backend.identify(task.image) if task else "", network=task.network if task else "")


class Workbench:
    def __init__(self, backend: Backend, artifacts: ArtifactStore, pool: Executor, settings: Settings, task: Task,
                 owner: str) -> None:
        self._backend, self._artifacts, self._pool = backend, artifacts, pool
        self._task, self._dialect, self._owner = task, dialect(task.dialect), owner
        self._limits, self._deadline_s = limits_of(settings), settings.tool_deadline_s
        self._sandbox: Sandbox | None = None
        self._closed = False

    async def open(self, workspace: str | None) -> None:
        """A fresh sandbox with the workspace of that digest, or the task's files. Raises SandboxError."""
        await self._in_thread(self._acquire, workspace)

    async def replace(self, workspace: str | None) -> None:
        """Throw the sandbox away, whatever is left of it, and open another."""
        await self._in_thread(self._dispose)
        await self.open(workspace)

    async def run(self, tool: Tool, command: Command, workspace: str | None, wall_clock_s: float) -> Outcome:
        """Run one command; `workspace` is the digest before it."""
        deadline_s = min(tool.deadline_s or self._deadline_s, max(wall_clock_s, 0.001))
        return await self._in_thread(self._run, tool, command, workspace, deadline_s)

    async def close(self) -> None:
        """Never raises: the reaper removes what could not be removed here."""
        self._closed = True
        await self._in_thread(self._dispose)

    async def _in_thread(self, function: Callable[..., _Result], *arguments: object) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)

    @property
    def _held(self) -> Sandbox:
        if self._sandbox is None:
            raise SandboxError("no sandbox is open", kind="sandbox_start")
        return self._sandbox

    def _acquire(self, workspace: str | None) -> None:
        readonly = {TOOLBOX_MOUNT: toolbox_path()} if self._dialect.name == "line" else {}
        self._sandbox = self._backend.acquire(
            spec_for(self._task, workspace, readonly=readonly, limits=self._limits, owner=self._owner))
        if self._closed:
            self._dispose()

    def _dispose(self) -> None:
        sandbox, self._sandbox = self._sandbox, None
        if sandbox is not None:
            with contextlib.suppress(SandboxError):
                sandbox.close()

    def _run(self, tool: Tool, command: Command, workspace: str | None, deadline_s: float) -> Outcome:
        started = time.monotonic()
        try:
            result = self._held.exec(command.argv, stdin=command.stdin, deadline_s=deadline_s)
            after = self._held.snapshot() if tool.writes else None
        except SandboxError as broken:
            if broken.kind == "snapshot_limit":
                return self._undone(broken, result, workspace, started)
            return Outcome(status=ToolStatus.SANDBOX_BROKEN, shown=self._dialect.error(ToolStatus.SANDBOX_BROKEN),
                           failure_kind=broken.kind, duration_s=time.monotonic() - started)
        return self._outcome(result, after if after != workspace else None, deadline_s)

    def _undone(self, over: SandboxError, result: ExecResult, workspace: str | None, started: float) -> Outcome:
        """A fresh sandbox with the workspace as it was before the call, so what is submitted is what was kept."""
        self._dispose()
        self._acquire(workspace)
        problem = f"{over.what}: the workspace is as it was before the call ({over.hint})"
        return Outcome(
            status=ToolStatus.OUTPUT_LIMIT, shown=self._dialect.error(ToolStatus.OUTPUT_LIMIT, problem),
            exit_code=result.exit_code, output_bytes=result.stdout_bytes + result.stderr_bytes, truncated=True,
            failure_kind=over.kind, duration_s=time.monotonic() - started)

    def _outcome(self, result: ExecResult, workspace: str | None, deadline_s: float) -> Outcome:
        status = status_of(result)
        whole = (result.stdout + result.stderr).decode(errors="replace")
        text = whole.removesuffix("\n")
        if status not in (ToolStatus.OK, ToolStatus.ERROR):
            problem = f"after {deadline_s:g} s" if status == ToolStatus.TIMEOUT else ""
            text = "\n".join(filter(None, [text, self._dialect.error(status, problem)]))
        elif self._dialect.explains and status == ToolStatus.ERROR:
            met = f"[the limit of {self._limits.pids} processes was met]" if result.pids_limit else ""
            text = "\n".join(filter(None, [text, met, f"[exit code {result.exit_code}]"]))
        shown, cut = self._dialect.cut(text)
        truncated = cut or result.truncated
        return Outcome(
            status=status, shown=shown, exit_code=result.exit_code, workspace=workspace, duration_s=result.duration_s,
            output_bytes=result.stdout_bytes + result.stderr_bytes, truncated=truncated,
            output_ref=self._artifacts.put(whole.encode(), "text/plain") if cut else None)


def status_of(result: ExecResult) -> ToolStatus:
    if result.timed_out:
        return ToolStatus.TIMEOUT
    if result.oom:
        return ToolStatus.OOM
    if result.output_limit:
        return ToolStatus.OUTPUT_LIMIT
    return ToolStatus.OK if result.exit_code == 0 else ToolStatus.ERROR
