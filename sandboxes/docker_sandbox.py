"""One container as a sandbox: commands, sessions, files, and its end."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from sandboxes import docker_script, reaper, script
from sandboxes.capture import capture, store
from sandboxes.docker_engine import Ended
from sandboxes.docker_keeper import Keeper, Met
from sandboxes.docker_session import Said, Talk
from sandboxes.docker_wire import ERR, OUT, Wire
from sandboxes.output import KILL_BYTES, Stream
from sandboxes.sandbox import ExecResult, SandboxSpec
from sandboxes.session import BEGIN_S, Kind
from sandboxes.workspace import INSIDE, read_file, write_file
from schemas.errors import SandboxError

if TYPE_CHECKING:
    from sandboxes.docker_backend import DockerBackend

_DRAIN_S = 15.0
_ENDED_S = 10.0
_SIGKILLED = 128 + 9
_TRUNCATED = 2 * KILL_BYTES


class Start(NamedTuple):
    """A container that has started."""

    id: str
    container: str
    folder: Path
    keeper: Keeper
    workspace: Path
    volumes: list[str]


class DockerSandbox:
    """One life. `close` may come from another thread while `exec` waits: the command dies with the sandbox."""

    backend = "docker"

    def __init__(self, owner: DockerBackend, spec: SandboxSpec, initial: str, start: Start) -> None:
        self.id, self.container = start.id, start.container
        self.initial = initial
        """Digest of the workspace as it was handed out."""
        self.skipped: list[bytes] = []
        """What the last snapshot left out: sockets, pipes, devices."""
        self.changing: list[bytes] = []
        """Files that kept changing while the last snapshot read them."""
        self._backend, self._spec, self._start = owner, spec, start
        self._busy = threading.Lock()
        """Held by whoever uses the container."""
        self._gate = threading.Lock()
        self._end = ""
        """Why nothing can be asked any more."""
        self._sessions: dict[Kind, Talk] = {}
        self._workspace = os.open(start.workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._lease = threading.Timer(spec.lease_s, self._expire)
        self._lease.daemon = True
        self._lease.start()

    def exec(self, argv: Sequence[str], *, deadline_s: float = 30.0, stdin: bytes = b"",
             environment: Mapping[str, str] | None = None, cwd: str | None = None) -> ExecResult:
        given = environment or {}
        if refusal := script.refusal(argv, cwd or "", given):
            return refusal
        with self._busy:
            self._check()
            started = time.monotonic()
            sweep = not any(talk.wire for talk in self._sessions.values())
            folder = os.path.join(INSIDE, cwd) if cwd else ""
            line = docker_script.command(argv, folder, given, len(stdin), self._spec.limits, sweep)
            plain = {key: value for key, value in given.items() if docker_script.is_plain(key, value)}
            if docker_script.is_too_long(line, plain):
                return script.refused(126, f"{argv[0][:200]}: Argument list too long\n")
            return self._run(line, plain, stdin, started, deadline_s, sweep)

    def _run(self, line: Sequence[str], environment: Mapping[str, str], stdin: bytes, started: float,
             deadline_s: float, sweep: bool) -> ExecResult:
        keep = self._spec.limits.output_kb << 10
        out, err = Stream(-1, keep), Stream(-1, keep)
        sinks = {OUT: out.add, ERR: err.add}
        process, wire = self._exec(line, environment)
        try:
            cause = wire.converse(b"\n" + stdin, sinks, started + deadline_s,
                                  lambda: "output_limit" if out.count + err.count > KILL_BYTES else None)
            met = self._kill() if cause or sweep else self._count()
            if cause:
                wire.converse(b"", sinks, time.monotonic() + _DRAIN_S,
                              lambda: "" if out.count + err.count > _TRUNCATED else None)
        finally:
            wire.close()
        ended = None if cause else self._ended(process)
        if ended and not ended.started:
            return self._refused(out, met)
        return _result(cause, ended.exit_code if ended else None, out, err, met, started)

    def session(self, kind: Kind, state: bytes = b"") -> DockerSession:
        return DockerSession(self, Talk(kind, self._spec.limits, state))

    def converse(self, talk: Talk, text: str, deadline_s: float) -> ExecResult:
        """One call of a session."""
        with self._busy:
            self._check()
            said = self._begin(talk)
            started = time.monotonic()
            said = said or talk.say(text, started + deadline_s)
            code, process = said.code, talk.process
            if said.cause != "died":
                met = self._kill() if said.cause else self._count()
            elif talk.wire is not None and talk.wire.ended:
                talk.finish(time.monotonic())
                met, code = self._count(), self._ended(process).exit_code
            else:  # It answers what is no answer: that is the doing of what it ran.
                met = self._kill()
            return _result(said.cause, code, said.stdout, said.stderr, met, started)

    def _begin(self, talk: Talk) -> Said | None:
        """Make sure that the session's process is there."""
        if (known := self._sessions.get(talk.kind)) is not talk:
            if known is not None:
                known.forget()
            self._sessions[talk.kind] = talk
        if talk.wire is not None and not talk.wire.ended:
            return None
        talk.forget()
        return talk.begin(*self._exec(talk.argv(), {}), time.monotonic() + BEGIN_S)

    def read(self, path: str, limit_bytes: int = 16 << 20) -> bytes:
        with self._busy:
            return read_file(self._folder(), path, limit_bytes)

    def write(self, path: str, data: bytes) -> None:
        with self._busy:
            write_file(self._folder(), path, data, self._backend.owner)

    def snapshot(self) -> str:
        with self._busy:
            captured = capture(self._folder(), self._backend.artifacts)
        self.skipped, self.changing = captured.skipped, captured.changing
        return store(captured, self._backend.artifacts)

    def close(self) -> None:
        with self._gate:
            if self._end == "closed":
                return
            self._end = "closed"
        self._lease.cancel()
        idle = self._busy.acquire(blocking=False)
        if idle:
            self._release()
            self._busy.release()
        self._remove()
        if not idle:
            with self._busy:
                self._release()
        reaper.remove_tree(self._start.folder)
        self._backend.forget(self)

    def _exec(self, line: Sequence[str], environment: Mapping[str, str]) -> tuple[str, Wire]:
        try:
            with self._backend.engine.told("the sandbox broke"):
                return self._backend.engine.exec(self.container, line, self._backend.user, environment)
        except SandboxError:
            self._check()
            raise

    def _kill(self) -> Met:
        """Kill all that was started, and take what it had written. What limits were met."""
        met = self._met(self._start.keeper.kill())
        for talk in self._sessions.values():
            talk.finish(time.monotonic() + _DRAIN_S)
        return met

    def _count(self) -> Met:
        return self._met(self._start.keeper.count())

    def _met(self, found: Met | None) -> Met:
        if found is None:
            self._check()
            with self._gate:
                self._end = self._end or "its keeper does not answer"
            raise SandboxError(f"the sandbox broke: {self._end}", value=self.id)
        return found

    def _ended(self, process: str) -> Ended:
        """How a command ended whose streams have: the engine may be a moment behind."""
        deadline = time.monotonic() + _ENDED_S
        with self._backend.engine.told("the sandbox broke"):
            while (found := self._backend.engine.ended(process)) is None and time.monotonic() < deadline:
                time.sleep(0.002)
        if found is None:
            raise SandboxError("the sandbox broke: a command is neither running nor over", value=self.id)
        return found

    def _refused(self, said: Stream, met: Met) -> ExecResult:
        """The engine could not start a command: the sandbox is at its limits, or it is broken."""
        text = said.kept.decode(errors="replace").strip()
        if any(met) or any(talk.wire for talk in self._sessions.values()):
            refused = script.refused(126, f"no process can be started: {text}\n")
            return msgspec.structs.replace(refused, oom=bool(met.oom), pids_limit=bool(met.pids))
        raise SandboxError(f"the sandbox broke: no process can be started ({text})", value=self.id)

    def _check(self) -> None:
        if self._end == "closed":
            raise SandboxError("sandbox is closed", kind="sandbox_closed", value=self.id)
        if self._end:
            raise SandboxError(f"the sandbox broke before: {self._end}", value=self.id)

    def _folder(self) -> int:
        if self._end == "closed":
            self._check()
        return self._workspace

    def _expire(self) -> None:
        with self._gate:
            if self._end:
                return
            self._end = "its lease has ended"
        self._remove()

    def _remove(self) -> None:
        """What an engine that does not answer leaves standing ends with our connection, or is the reaper's."""
        with contextlib.suppress(SandboxError), self._backend.engine.told("sandbox cannot be removed"):
            self._backend.engine.remove(self.container, self._start.volumes)

    def _release(self) -> None:
        for talk in self._sessions.values():
            talk.forget()
        self._start.keeper.close()
        if self._workspace >= 0:
            os.close(self._workspace)
            self._workspace = -1


class DockerSession:
    """A shell or a Python that stays in the sandbox. It ends with it."""

    def __init__(self, sandbox: DockerSandbox, talk: Talk) -> None:
        self._sandbox, self._talk = sandbox, talk
        self.kind: Kind = talk.kind

    @property
    def lives(self) -> int:
        return self._talk.lives

    @property
    def state(self) -> bytes:
        return self._talk.state

    def run(self, text: str, *, deadline_s: float = 30.0) -> ExecResult:
        if self.kind == "shell" and "\0" in text:
            return script.refused(126, "a shell command cannot hold a NUL byte\n")
        return self._sandbox.converse(self._talk, text, deadline_s)


def _result(cause: str, code: int | None, out: Stream, err: Stream, met: Met, started: float) -> ExecResult:
    return ExecResult(
        exit_code=None if met.oom and code == _SIGKILLED else code, stdout=out.kept, stderr=err.kept,
        stdout_bytes=out.count, stderr_bytes=err.count, truncated=out.truncated or err.truncated,
        timed_out=cause == "timed_out", oom=bool(met.oom), pids_limit=bool(met.pids),
        output_limit=cause == "output_limit", duration_s=time.monotonic() - started)
