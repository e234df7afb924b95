"""The Sandbox contract: acquire, exec/read/write, snapshot, close.

A used sandbox is never handed out again: reset means a fresh upper layer, proved by digest. The command's failures
are results (`ExecResult`); SandboxError means that the sandbox itself broke. Methods block; `sandboxes.aio` awaits
them from the episode loop. One caller at a time per sandbox.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from schemas.errors import SandboxError


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    memory_mb: int = 512
    pids: int = 256
    file_mb: int = 256
    output_kb: int = 256
    """Kept of each output stream: the first half of it from the head, the rest from the tail."""
    workspace_mb: int = 256
    """What a sandbox may write in all: workspace, /tmp and /dev/shm together."""
    cpu_seconds: int | None = None
    """Processor time of any one process."""


Network = Literal["none", "host"]
HOST = "host"
"""What events call the image of a sandbox that has the host's programs."""


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """Shell commands that run once; what they leave is a layer, found again by their text, `files` and the image."""

    commands: Sequence[str]
    files: Mapping[str, bytes] = {}
    """The workspace that they find. What they make of it is where a workspace starts that names no other."""
    network: Network = "none"
    deadline_s: float = 900.0
    """Of all commands together."""


class SandboxSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What to acquire. `workspace` is the digest of a snapshot to restore; null: what `setup` left, with `files`."""

    image: str = ""
    """The programs inside, as the backend names them: bubblewrap takes a folder or a tar of a root file system, or the
    digest of one that it had before; docker an image. Empty: the backend's own. Capability `images`."""
    setup: Setup | None = None
    """Capability `setup`."""
    network: Network = "none"
    """`host`: the host's own, loopback and abstract sockets with it. Capability `host_network`."""
    files: Mapping[str, bytes] = {}
    workspace: str | None = None
    readonly: Mapping[str, Path] = {}
    """Absolute path inside to a host file or folder that is mounted read-only there (tools, hidden tests)."""
    aliases: Sequence[str] = ()
    """Absolute paths inside at which the workspace is seen too (`/app`). Capability `aliases`."""
    environment: Mapping[str, str] = {}
    limits: Limits = Limits()
    owner: str = ""
    """Who leases it (run, episode), for people: the reaper goes by the owner's process."""
    lease_s: float = 3600.0


def require(spec: SandboxSpec, name: str, capabilities: Container[str]) -> None:
    """Raises SandboxError (kind `unsupported`) where a spec asks for what this backend has not."""
    asked = {"images": spec.image, "setup": spec.setup, "host_network": spec.network == "host" and "network",
             "aliases": spec.aliases}
    for capability, value in asked.items():
        if value and capability not in capabilities:
            raise SandboxError(f"the backend `{name}` does not have `{capability}`, which this sandbox asks for",
                               kind="unsupported", hint="use the backend bubblewrap")


class ExecResult(msgspec.Struct, frozen=True, kw_only=True):
    """`stdout` and `stderr` are what was kept (head and tail); the counts are true."""

    exit_code: int | None
    """Null when the command was killed (time-out, OOM, output limit)."""
    stdout: bytes = b""
    stderr: bytes = b""
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    truncated: bool = False
    timed_out: bool = False
    oom: bool = False
    output_limit: bool = False
    pids_limit: bool = False
    """The limit of processes refused one. Told where a cgroup counts them: capability `pids`."""
    duration_s: float = 0.0


class Session(Protocol):
    """A shell or a Python that stays: what a call leaves behind, the next one finds."""

    kind: Literal["shell", "python"]

    @property
    def lives(self) -> int:
        """Processes that it has had: one more than before means that what they held in memory is lost."""
        ...

    @property
    def state(self) -> bytes:
        """Of a shell: what brings another one, in another sandbox too, to its directory and exported variables."""
        ...

    def run(self, text: str, *, deadline_s: float = 30.0) -> ExecResult:
        """Run shell commands or Python code. On a time-out every process of the sandbox is dead when this returns;
        the next call gets a new one. Output of background jobs comes with that of the call during which it is
        written."""
        ...


class Sandbox(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def backend(self) -> str: ...
    @property
    def initial(self) -> str:
        """Digest of the workspace as it was handed out."""
        ...

    def exec(self, argv: Sequence[str], *, deadline_s: float = 30.0, stdin: bytes = b"",
             environment: Mapping[str, str] | None = None, cwd: str | None = None) -> ExecResult:
        """Run a command in the workspace (`/workspace`). Working directory and exports of earlier commands do not
        carry over. On a time-out the whole process tree is dead when this returns, and partial output is returned."""
        ...

    def session(self, kind: Literal["shell", "python"], state: bytes = b"") -> Session:
        """One of each kind at a time; it ends with the sandbox. Capability `session`."""
        ...

    def read(self, path: str, limit_bytes: int = 16 << 20) -> bytes:
        """A file of the workspace by relative path; never follows a link out. FileNotFoundError if absent."""
        ...

    def write(self, path: str, data: bytes) -> None: ...

    def snapshot(self) -> str:
        """Digest of the workspace now, restorable from the artifact store by `SandboxSpec.workspace`."""
        ...

    def close(self) -> None: ...


class Backend(Protocol):
    """Makes sandboxes. `isolates` is what verifiers and the demo ask for before they trust it.

    Capabilities, each proved by the tests of the backend that claims it:
    `deadline`, `output_limit`, `snapshot`: as the contract says, with partial output and true counts.
    `files`: of the host only the system's programs and what was mounted; `readonly`: mounts cannot be written.
    `network`: none, but a loopback of its own. `non_root`: an ordinary user without any privilege.
    `processes`: when `exec` returns, every process that the command started is dead, however it hid.
    `memory`, `pids`, `oom`: limits for all processes together, and `oom` is told; else each process has rlimits.
    `session`: a shell and a Python that stay. `aliases`: the workspace at further paths.
    `images`: another root file system than the host's. `setup`: what set-up commands left, kept as a layer.
    `host_network`: the host's network where the spec asks for it.
    `workspace_limit`: all that it writes is bounded by `workspace_mb`.
    """

    name: str
    isolates: bool
    capabilities: frozenset[str]

    def acquire(self, spec: SandboxSpec) -> Sandbox:
        """A fresh sandbox. Raises SandboxError (kind `sandbox_start`) when it cannot be had."""
        ...

    def identify(self, image: str) -> str:
        """What events call an image: its digest, or `host` for the backend's own. May have to unpack it first."""
        ...

    def reap(self) -> int:
        """Remove what dead owners left behind; how many."""
        ...

    def close(self) -> None: ...
