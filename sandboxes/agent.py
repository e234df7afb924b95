"""The owner's end of one agent: sends a command, streams its output, takes its exit code or says why there is none."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Mapping, Sequence

import msgspec

from sandboxes import script
from sandboxes.output import KILL_BYTES, Stream
from sandboxes.sandbox import Limits
from schemas.errors import SandboxError

_READY_S = 20.0
_QUIET_MS = 4
"""Most commands are short and say little: for this long only the exit code wakes us, then output does too."""


class Run(msgspec.Struct, frozen=True):
    """How a command ended. `cause` is empty when it ended by itself, else `timed_out`, `output_limit` or `died`."""

    exit_code: int | None
    cause: str
    stdout: Stream
    stderr: Stream
    started: float


class Agent:
    """Owns four descriptors. After a run whose cause is not empty, only `close` may follow."""

    def __init__(self, descriptors: Sequence[int], limits: Limits, environment: Mapping[str, str],
                 rlimits: bool) -> None:
        self._control, self._out, self._err, self._stdin = descriptors
        self._keep_bytes = limits.output_kb << 10
        self._answer = b""
        for descriptor in (self._control, self._out, self._err):
            os.set_blocking(descriptor, False)
        self._quiet = select.poll()
        self._quiet.register(self._control, select.POLLIN)
        self._all = select.poll()
        for descriptor in (self._control, self._out, self._err):
            self._all.register(descriptor, select.POLLIN)
        self._prologue = script.prologue(limits, environment, rlimits)

    def wait_until_ready(self) -> None:
        """Raises SandboxError with what bubblewrap or the shell said, when the agent does not come up."""
        deadline = time.monotonic() + _READY_S
        sent = self._send(self._prologue, deadline)
        while sent and self._answer != script.READY and (left := deadline - time.monotonic()) > 0:
            if self._quiet.poll(left * 1000) and not self._receive():
                break
        if self._answer != script.READY:
            said = Stream(self._err, 8192)
            said.drain()
            reason = said.kept.decode(errors="replace").strip() or "its agent does not answer"
            raise SandboxError(f"sandbox cannot be started: {reason}", kind="sandbox_start")
        self._answer = b""

    def run(self, line: bytes, stdin: bytes, deadline_s: float) -> Run:
        started = time.monotonic()
        deadline = started + deadline_s
        # A command that runs as our own user may have changed the modes; the next one opens these anew.
        os.fchmod(self._out, 0o666)
        os.fchmod(self._err, 0o666)
        if stdin:
            self._give_stdin(stdin)
        out, err = Stream(self._out, self._keep_bytes), Stream(self._err, self._keep_bytes)
        if not self._send(line, deadline):
            return Run(None, "died", out, err, started)
        code, cause = self._follow(out, err, deadline)
        return Run(code, cause, out, err, started)

    def _follow(self, out: Stream, err: Stream, deadline: float) -> tuple[int | None, str]:
        self._answer = b""
        ready = self._quiet.poll(min(_QUIET_MS, max(0.0, deadline - time.monotonic()) * 1000))
        while True:
            if any(descriptor == self._control for descriptor, _ in ready) and not self._receive():
                return None, "died"
            out.drain()
            err.drain()
            if out.count + err.count > KILL_BYTES:
                return None, "output_limit"
            if self._answer.endswith(b"\n"):
                return int(self._answer), ""
            left = deadline - time.monotonic()
            if left <= 0:
                return None, "timed_out"
            ready = self._all.poll(left * 1000)

    def finish(self, run: Run) -> None:
        """Take what the dead had written before they died."""
        for stream in (run.stdout, run.stderr):
            while not stream.ended and stream.count <= 2 * KILL_BYTES:
                before = stream.count
                stream.drain(2 * KILL_BYTES)
                if stream.count == before:
                    break

    def close(self) -> None:
        for descriptor in (self._control, self._out, self._err, self._stdin):
            os.close(descriptor)

    def _give_stdin(self, data: bytes) -> None:
        os.fchmod(self._stdin, 0o444)
        os.ftruncate(self._stdin, 0)
        view, offset = memoryview(data), 0
        while offset < len(data):
            offset += os.pwrite(self._stdin, view[offset:], offset)

    def _receive(self) -> bool:
        try:
            data = os.read(self._control, 256)
        except BlockingIOError:
            return True
        except ConnectionError:
            return False
        self._answer += data
        return bool(data)

    def _send(self, data: bytes, deadline: float) -> bool:
        """False when the agent is gone."""
        view = memoryview(data)
        writable = None
        while view:
            try:
                view = view[os.write(self._control, view):]
            except BlockingIOError:
                if writable is None:
                    writable = select.poll()
                    writable.register(self._control, select.POLLOUT)
                if not writable.poll(max(0.0, deadline - time.monotonic()) * 1000):
                    return True  # not read within the deadline: the caller will see the time-out
            except OSError:
                return False
        return True
