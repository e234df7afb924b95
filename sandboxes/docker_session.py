"""Sessions in a container: a shell or a Python that stays, on a connection of its own.

An answer comes on the stream that output comes on, between two marks that nobody knows but this process and its owner.
Both streams are marked, so all that a call wrote is there when its answer is.
"""

from __future__ import annotations

import os
import secrets
import struct
from pathlib import Path
from typing import NamedTuple

from sandboxes import docker_script, script
from sandboxes.control import ANSWER_BYTES
from sandboxes.docker_wire import ERR, OUT, Sink, Wire
from sandboxes.output import KILL_BYTES, Stream
from sandboxes.sandbox import Limits
from sandboxes.session import Kind

_LOOP = (Path(__file__).parent / "spawner" / "python_session.py").read_text(encoding="utf-8")
_LENGTH = struct.Struct("<I")


class Said(NamedTuple):
    """What came of a call. `cause` as in an agent's run; `died` when the session's process ended instead."""

    cause: str
    code: int | None
    stdout: Stream
    stderr: Stream


class Marked:
    """Splits one stream into output, an answer, and what belongs to the next call."""

    def __init__(self, begin: bytes, end: bytes) -> None:
        self._begin, self._end = begin, end
        self._held = b""
        self.answer = b""
        self.complete = True

    def expect(self, stream: Stream) -> None:
        self._stream, self._found, self.complete, self.answer = stream, False, False, b""
        held, self._held = self._held, b""
        self.add(held)

    def add(self, data: bytes) -> None:
        data, self._held = self._held + data, b""
        if self.complete:
            self._held = data
        elif self._found:
            self._take_answer(data)
        elif (at := data.find(self._begin)) >= 0:
            self._pass_on(data[:at])
            self._found = True
            self._take_answer(data[at + len(self._begin):])
        else:
            kept = min(len(data), len(self._begin) - 1)
            self._pass_on(data[:len(data) - kept])
            self._held = data[len(data) - kept:]

    def give_up(self) -> None:
        """No answer will come: what was held back may be part of one, and was output."""
        if not self._found:
            self._pass_on(self._held)
        self._held, self.complete = b"", True

    def _take_answer(self, data: bytes) -> None:
        at = data.find(self._end)
        if at < 0:
            self._held = data[-ANSWER_BYTES:]
            return
        self.answer, self.complete = data[:at], True
        self._held = data[at + len(self._end):]

    def _pass_on(self, data: bytes) -> None:
        if data:
            self._stream.add(data)


class Talk:
    """One session's process at a time, and what brings the next one to where it was."""

    def __init__(self, kind: Kind, limits: Limits, state: bytes) -> None:
        self.kind, self.limits, self.state = kind, limits, state
        self.lives = 0
        self.process = ""
        """What the engine calls the process, while there is one."""
        self.wire: Wire | None = None

    def argv(self) -> list[str]:
        if self.kind == "shell":
            return docker_script.shell_session(self.limits)
        return docker_script.python_session(self.limits, _LOOP)

    def begin(self, process: str, wire: Wire, deadline: float) -> Said | None:
        """Take a fresh process; what it said if it was late or ended before its first call."""
        name = secrets.token_hex(16).encode()
        self.begins, self.ends = b"\0\0<" + name + b"\0", b"\0\0>" + name + b"\0"
        self.process, self.wire = process, wire
        self._out, self._err = Marked(self.begins, self.ends), Marked(self.begins, b"")
        self.lives += 1
        self._calls = 0
        hello = b"\n"
        if self.kind == "python":
            hello += b"".join(_LENGTH.pack(len(mark)) + mark for mark in (self.begins, self.ends))
        wire.converse(hello, {}, deadline, lambda: "")
        if self.kind == "shell" and self.state:
            brought = self.say(self.state.decode(errors="surrogateescape"), deadline)
            return brought if brought.cause else None
        return None

    def say(self, text: str, deadline: float) -> Said:
        """What runs in a session can reach its streams: an answer that is none of ours is the end of the session."""
        assert self.wire is not None
        self._calls += 1
        raw = os.fsencode(text)
        if self.kind == "shell":
            message = docker_script.shell_call(raw, self._calls, self.begins, self.ends)
        else:
            message = _LENGTH.pack(len(raw)) + raw
        keep = self.limits.output_kb << 10
        out, err = Stream(-1, keep), Stream(-1, keep)
        self._out.expect(out)
        self._err.expect(err)

        def stop() -> str | None:
            if out.count + err.count > KILL_BYTES:
                return "output_limit"
            return "" if self._out.complete and self._err.complete else None

        cause = self.wire.converse(message, self._sinks(), deadline, stop)
        code = None if cause or not self._out.complete else self._code()
        return Said(cause or ("died" if code is None else ""), code, out, err)

    def finish(self, deadline: float) -> None:
        """Take what the dead had written before they died."""
        if self.wire is not None:
            left = iter(range(2 * KILL_BYTES >> 16))
            self.wire.converse(b"", self._sinks(), deadline, lambda: None if next(left, None) is not None else "")
            self._out.give_up()
            self._err.give_up()
        self.forget()

    def forget(self) -> None:
        """There is no process any more."""
        if self.wire is not None:
            self.wire.close()
        self.wire, self.process = None, ""

    def _sinks(self) -> dict[int, Sink]:
        return {OUT: self._out.add, ERR: self._err.add}

    def _code(self) -> int | None:
        line, _, rest = self._out.answer.partition(b"\n")
        code = script.exit_code(line + b"\n", self._calls)
        if self.kind == "shell" and code is not None:
            folder, _, exports = rest.partition(b"\0")
            # What runs in the background may write in between; such an answer tells the code and no more.
            if b"\0" not in exports:
                self.state = b"cd -- " + script.quote(folder) + b" 2>/dev/null\n" + exports
        return code
