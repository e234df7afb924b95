"""Backend `process`: commands run as we do, in a temporary folder. It isolates nothing and must be asked for by name.

Paths: the workspace is a folder of the host. A word of a command that starts with /workspace, or with a read-only
mount (`/tools/calc`), is mapped to the host's path; inside scripts use relative paths, `$HEADRACE_WORKSPACE`, or a
tool's bare name: folders mounted read-only are on the PATH. What is mounted read-only is the host's own copy.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from artifacts.store import ArtifactStore
from sandboxes import reaper, script
from sandboxes.agent import Agent
from sandboxes.capture import capture, store
from sandboxes.environment import SYSTEM_PATH, environment_of
from sandboxes.interpreter import NAMES
from sandboxes.lower import manifest_for
from sandboxes.output import KILL_BYTES, Stream
from sandboxes.process_session import ProcessSession, start_agent
from sandboxes.readonly import mounts_of
from sandboxes.restore import restore
from sandboxes.sandbox import HOST, ExecResult, Limits, SandboxSpec, require
from sandboxes.session import Dialogue, Kind
from sandboxes.workspace import INSIDE, read_file, write_file
from schemas.errors import SandboxError
from schemas.ids import new_id

_MARK = "HEADRACE_SANDBOX"
_POLL_S = 0.05
_warned = False


class ProcessBackend:
    """Folders below the owner's folder in the state directory; gone with `close`, or by the reaper."""

    name = "process"
    isolates = False
    capabilities = frozenset({"output_limit", "deadline", "session", "snapshot"})

    def __init__(self, root: Path, artifacts: ArtifactStore) -> None:
        self.root, self.artifacts = root, artifacts
        self.folder = reaper.OwnerFolder(root)
        self.tools = self.folder.path / "python"
        self.tools.mkdir()
        for name in NAMES:
            (self.tools / name).symlink_to(sys.executable)

    def acquire(self, spec: SandboxSpec) -> ProcessSandbox:
        return ProcessSandbox(self, spec)

    def identify(self, image: str) -> str:
        return image or HOST

    def reap(self) -> int:
        return reaper.reap(self.root)

    def close(self) -> None:
        self.folder.remove()


class ProcessSandbox:
    backend = "process"

    def __init__(self, owner: ProcessBackend, spec: SandboxSpec) -> None:
        require(spec, owner.name, {*owner.capabilities, "host_network"})
        self.id = new_id()
        self._backend, self._spec = owner, spec
        self._folder = owner.folder.path / self.id
        self._work = self._folder / "workspace"
        self._readonly = [(inside, source) for inside, source, _ in reversed(mounts_of(spec, other_user=False))]
        self.initial, manifest, large = manifest_for(spec, owner.artifacts)
        self.skipped: list[bytes] = []
        self.changing: list[bytes] = []
        self._workspace = -1
        self._group = 0
        self._busy = threading.Lock()
        """Held by whoever talks to the agent."""
        self._agent: Agent | None = None
        self._agent_pid = 0
        self._limits = _limits(spec.limits)
        self._lock = threading.Lock()
        try:
            (self._folder / "tmp").mkdir(parents=True)
            self._work.mkdir()
            self.lost = restore(manifest, lambda name: large.get(name) or owner.artifacts.get(name),
                                self._work).lost
            self._workspace = os.open(self._work, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as wrong:
            reaper.remove_tree(self._folder)
            raise SandboxError(f"sandbox cannot be started: {wrong}", kind="sandbox_start") from None

    def exec(self, argv: Sequence[str], *, deadline_s: float = 30.0, stdin: bytes = b"",
             environment: Mapping[str, str] | None = None, cwd: str | None = None) -> ExecResult:
        self._open_folder()
        if refusal := script.refusal(argv, cwd or "", environment or {}):
            return refusal
        folder = self._host_path(os.path.join(INSIDE, cwd or ""))
        if not os.path.isdir(folder):
            return script.refused(126, f"{os.path.join(INSIDE, cwd or '')}: no such folder\n")
        words = [self._host_path(word) for word in argv]
        variables = self._environment(environment or {})
        found = os.path.join(folder, words[0]) if "/" in words[0] else shutil.which(words[0], path=variables["PATH"])
        if found is None or not os.path.exists(found):
            return script.refused(127, f"{argv[0]}: command not found\n")
        if os.path.isdir(found) or not os.access(found, os.X_OK):
            return script.refused(126, f"{argv[0]}: permission denied\n")
        odd = [f"{key}={value}" for key, value in variables.items() if not script.is_name(key)]
        if odd:  # the shell would drop them
            words = ["env", "--", *odd, *words]
        started = time.monotonic()
        with _stdin(stdin) as given:
            # The shell sets the limits: a hook between fork and exec is not safe in a process with threads.
            try:
                process = subprocess.Popen(
                    ["/bin/sh", "-c", self._limits + 'exec "$@"', "sh", *words], stdin=given, stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE, cwd=folder, env=variables, process_group=0)
            except OSError as wrong:
                return script.refused(126, f"{argv[0]}: {wrong.strerror}\n")
        with self._lock:
            self._group = process.pid
        return self._follow(process, started, deadline_s)

    def session(self, kind: Kind, state: bytes = b"") -> ProcessSession:
        return ProcessSession(kind, state, str(self._work), self._own(), self._converse)

    def _converse(self, dialogue: Dialogue, text: str, deadline_s: float) -> ExecResult:
        """One call of a session."""
        with self._busy:
            self._open_folder()
            if self._agent is None:
                folder, variables = str(self._work), self._environment({})
                self._agent, self._agent_pid = start_agent(folder, self._limits, variables, self._spec.limits.output_kb)
                self._agent.wait_until_ready()
            run = dialogue.begin(self._agent) or dialogue.say(self._agent, text, deadline_s)
            if run.cause:
                self._kill_all()
                self._agent.finish(run)
                self._release_agent()
            self._open_folder()
            return run.result()

    def read(self, path: str, limit_bytes: int = 16 << 20) -> bytes:
        return read_file(self._open_folder(), path, limit_bytes)

    def write(self, path: str, data: bytes) -> None:
        write_file(self._open_folder(), path, data, None)

    def snapshot(self) -> str:
        captured = capture(self._open_folder(), self._backend.artifacts)
        self.skipped, self.changing = captured.skipped, captured.changing
        return store(captured, self._backend.artifacts)

    def close(self) -> None:
        workspace, self._workspace = self._workspace, -1
        self._kill_all()
        with self._busy:
            self._release_agent()
            if workspace >= 0:
                os.close(workspace)
        reaper.remove_tree(self._folder)

    def _release_agent(self) -> None:
        if self._agent is not None:
            self._agent.close()
            self._agent = None
            os.waitpid(self._agent_pid, 0)
            self._agent_pid = 0

    def _follow(self, process: subprocess.Popen[bytes], started: float, deadline_s: float) -> ExecResult:
        assert process.stdout and process.stderr
        keep = self._spec.limits.output_kb << 10
        out, err = Stream(process.stdout.fileno(), keep), Stream(process.stderr.fileno(), keep)
        for stream in (out, err):
            os.set_blocking(stream.descriptor, False)
        cause = ""
        try:
            while process.poll() is None and not cause:
                _wait_for(process, (out, err), min(_POLL_S, max(0.0, started + deadline_s - time.monotonic())))
                out.drain()
                err.drain()
                if out.count + err.count > KILL_BYTES:
                    cause = "output_limit"
                elif time.monotonic() >= started + deadline_s:
                    cause = "timed_out"
            if cause or self._agent is None:
                self._kill_all()
                with self._busy:
                    self._release_agent()
            else:
                self._kill_command()
            process.wait()
            for stream in (out, err):
                stream.drain()
        finally:
            process.stdout.close()
            process.stderr.close()
        code = process.returncode
        return ExecResult(
            exit_code=None if cause else (code if code >= 0 else 128 - code), stdout=out.kept, stderr=err.kept,
            stdout_bytes=out.count, stderr_bytes=err.count, truncated=out.truncated or err.truncated,
            timed_out=cause == "timed_out", output_limit=cause == "output_limit", duration_s=time.monotonic() - started)

    def _kill_command(self) -> bool:
        """The command's process group; False when there is none."""
        with self._lock:
            group, self._group = self._group, 0
        if group:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)
        return bool(group)

    def _kill_all(self) -> None:
        """Also the agent's group with its sessions, and what left a group but still carries our mark."""
        if not self._kill_command() and self._agent is None:
            return
        mark = f"{_MARK}={self.id}".encode()
        for entry in os.scandir("/proc"):
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if mark in Path(entry.path, "environ").read_bytes().split(b"\0"):
                        os.kill(int(entry.name), signal.SIGKILL)

    def _host_path(self, word: str) -> str:
        for inside, source in (*self._readonly, (INSIDE, str(self._work))):
            if word == inside or word.startswith(inside.rstrip("/") + "/"):
                return source + word[len(inside.rstrip("/")):]
        return word

    def _environment(self, extra: Mapping[str, str]) -> dict[str, str]:
        tools = [source for _, source in self._readonly if os.path.isdir(source)]
        path = ":".join([str(self._backend.tools), *tools, SYSTEM_PATH])
        return {**environment_of(self._spec.environment, path), **self._own(), "PWD": str(self._work), **extra}

    def _own(self) -> dict[str, str]:
        """Variables that no other sandbox has alike."""
        return {"HOME": str(self._work), "TMPDIR": str(self._folder / "tmp"), "HEADRACE_WORKSPACE": str(self._work),
                _MARK: self.id}

    def _open_folder(self) -> int:
        if self._workspace < 0:
            raise SandboxError("sandbox is closed", kind="sandbox_closed", value=self.id)
        return self._workspace


def _limits(limits: Limits) -> str:
    text = f"ulimit -c 0;ulimit -f {limits.file_mb * 2048};ulimit -v {limits.memory_mb * 1024};"
    return text if limits.cpu_seconds is None else f"{text}ulimit -t {limits.cpu_seconds};"


@contextlib.contextmanager
def _stdin(data: bytes) -> Iterator[int]:
    descriptor = os.memfd_create("stdin") if data else os.open("/dev/null", os.O_RDONLY)
    try:
        view, offset = memoryview(data), 0
        while offset < len(data):
            offset += os.pwrite(descriptor, view[offset:], offset)
        yield descriptor
    finally:
        os.close(descriptor)


def _wait_for(process: subprocess.Popen[bytes], streams: tuple[Stream, Stream], timeout_s: float) -> None:
    descriptor = os.pidfd_open(process.pid)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        for stream in streams:
            if not stream.ended:
                poll.register(stream.descriptor, select.POLLIN)
        poll.poll(timeout_s * 1000)
    finally:
        os.close(descriptor)


def warn_once() -> None:
    global _warned
    if not _warned:
        _warned = True
        print("warning: sandbox backend `process` does not isolate: commands run with your rights and see your files",
              file=sys.stderr)


