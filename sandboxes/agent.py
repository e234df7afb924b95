"""The owner's end of one agent: sends a command, streams its output, takes its exit code or says why there is none."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Sequence

import msgspec

from sandboxes import script
from sandboxes.control import Control
from sandboxes.output import KILL_BYTES, Stream
from sandboxes.sandbox import ExecResult
from schemas.errors import SandboxError

_READY_S = 20.0
_SIGKILLED = 128 + 9
_QUIET_MS = 4
"""Most commands are short and say little: for this long only the exit code wakes us, then output does too."""
_LIVENESS_S = 1.0
"""A session that is silent for this long is asked after: its process may have been killed by what it ran."""


class Run(msgspec.Struct, frozen=True):
    """How a command ended. `cause` is empty when it ended by itself, else `timed_out`, `output_limit` or `died`."""

    exit_code: int | None
    cause: str
    stdout: Stream
    stderr: Stream
    started: float

    def result(self, oom: bool = False, pids_limit: bool = False) -> ExecResult:
        killed = oom and self.exit_code == _SIGKILLED
        return ExecResult(
            exit_code=None if killed else self.exit_code, stdout=self.stdout.kept, stderr=self.stderr.kept,
            stdout_bytes=self.stdout.count, stderr_bytes=self.stderr.count,
            truncated=self.stdout.truncated or self.stderr.truncated, timed_out=self.cause == "timed_out", oom=oom,
            pids_limit=pids_limit, output_limit=self.cause == "output_limit",
            duration_s=time.monotonic() - self.started)


class Agent:
    """Owns its descriptors. After a run whose cause is not empty, only `close` may follow.

    `sessions`: streams to the places of sessions, by kind; `started`: process ids of those that were begun.
    """

    def __init__(self, descriptors: Sequence[int], output_kb: int, prologue: bytes) -> None:
        """`prologue`: what it is told first, at the end of which it says that it is ready."""
        control, self._out, self._err, self._stdin, *sessions = descriptors
        self._control = Control(control)
        self.sessions = {kind: Control(end) for kind, end in zip(script.SESSIONS, sessions, strict=True)}
        self.started: dict[str, int] = {}
        self._keep_bytes = output_kb << 10
        for descriptor in (self._out, self._err):
            os.set_blocking(descriptor, False)
        self._prologue = prologue

    def wait_until_ready(self) -> None:
        """Raises SandboxError with what bubblewrap or the shell said, when the agent does not come up."""
        deadline = time.monotonic() + _READY_S
        answers = _polling(self._control.descriptor)
        sent = self._control.send(self._prologue, deadline)
        while sent and self._control.answer != script.READY and (left := deadline - time.monotonic()) > 0:
            if answers.poll(left * 1000) and not self._control.receive():
                break
        if self._control.answer != script.READY:
            said = Stream(self._err, 8192)
            said.drain()
            reason = said.kept.decode(errors="replace").strip() or "its agent does not answer"
            raise SandboxError(f"sandbox cannot be started: {reason}", kind="sandbox_start")

    def run(self, line: bytes, stdin: bytes, deadline_s: float) -> Run:
        """A command of its own; the answer is its exit code."""
        if stdin:
            self._give_stdin(stdin)
        return self._converse(self._control, line, deadline_s, lambda answer: answer.endswith(b"\n"), int)

    def begin(self, kind: str, line: bytes, deadline_s: float) -> Run:
        """Start a session; the answer is its process id."""
        run = self.run(line, b"", deadline_s)
        if run.exit_code is not None:
            self.started[kind] = run.exit_code
        self.sessions[kind].forget()
        return run

    def say(self, kind: str, message: bytes, deadline_s: float, complete: Callable[[bytes], bool],
            code: Callable[[bytes], int | None]) -> Run:
        """One call of a session that was begun: `complete` tells when all of its answer is there, `code` what it means;
        null for what is no answer, which ends like a process that died."""
        return self._converse(self.sessions[kind], message, deadline_s, complete, code,
                              lambda: self._lives(self.started[kind]))

    def _converse(self, control: Control, message: bytes, deadline_s: float, complete: Callable[[bytes], bool],
                  code: Callable[[bytes], int | None], alive: Callable[[], bool] | None = None) -> Run:
        started = time.monotonic()
        deadline = started + deadline_s
        # A command that runs as our own user may have changed the modes; the next one opens these anew.
        os.fchmod(self._out, 0o666)
        os.fchmod(self._err, 0o666)
        out, err = Stream(self._out, self._keep_bytes), Stream(self._err, self._keep_bytes)
        control.forget()
        if not control.send(message, deadline):
            return Run(None, "died", out, err, started)
        cause = self._follow(control, out, err, deadline, complete, alive)
        found = None if cause else code(control.answer)
        return Run(found, cause or ("died" if found is None else ""), out, err, started)

    def _follow(self, control: Control, out: Stream, err: Stream, deadline: float,
                complete: Callable[[bytes], bool], alive: Callable[[], bool] | None) -> str:
        longest = _LIVENESS_S if alive else float("inf")
        ready = _polling(control.descriptor).poll(min(_QUIET_MS, max(0.0, deadline - time.monotonic()) * 1000))
        everything = None
        while True:
            if any(descriptor == control.descriptor for descriptor, _ in ready) and not control.receive():
                return "died"
            out.drain()
            err.drain()
            if out.count + err.count > KILL_BYTES:
                return "output_limit"
            if complete(control.answer):
                return ""
            left = deadline - time.monotonic()
            if left <= 0:
                return "timed_out"
            everything = everything or _polling(control.descriptor, self._out, self._err)
            ready = everything.poll(min(longest, left) * 1000)
            if not ready and alive and not alive():
                return "died"

    def _lives(self, pid: int) -> bool:
        self._control.forget()
        deadline = time.monotonic() + _READY_S
        if not self._control.send(script.alive(pid), deadline):
            return False
        answers = _polling(self._control.descriptor)
        while not self._control.answer.endswith(b"\n"):
            if not answers.poll(max(0.0, deadline - time.monotonic()) * 1000) or not self._control.receive():
                return False
        return self._control.answer == b"0\n"

    def finish(self, run: Run) -> None:
        """Take what the dead had written before they died."""
        for stream in (run.stdout, run.stderr):
            while not stream.ended and stream.count <= 2 * KILL_BYTES:
                before = stream.count
                stream.drain(2 * KILL_BYTES)
                if stream.count == before:
                    break

    def close(self) -> None:
        self._control.close()
        for control in self.sessions.values():
            control.close()
        for descriptor in (self._out, self._err, self._stdin):
            os.close(descriptor)

    def _give_stdin(self, data: bytes) -> None:
        os.fchmod(self._stdin, 0o444)
        os.ftruncate(self._stdin, 0)
        view, offset = memoryview(data), 0
        while offset < len(data):
            offset += os.pwrite(self._stdin, view[offset:], offset)


def _polling(*descriptors: int) -> select.poll:
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return poll
