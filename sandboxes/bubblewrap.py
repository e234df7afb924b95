"""Backend `bubblewrap`: a sandbox is an overlay over a shared lower layer, and one agent in namespaces of its own.

Mounts and processes belong to the spawner, so `kill -9` of anything leaves neither on the host. The owner talks to the
agent directly, and reads and writes the workspace through a descriptor of the merged overlay.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from artifacts.store import ArtifactStore
from sandboxes import reaper, script
from sandboxes.agent import Agent, Run
from sandboxes.capture import Base, capture, now_ns, store
from sandboxes.environment import PATH, environment_of
from sandboxes.helper import Channel, Spawner
from sandboxes.lower import Lower, Lowers
from sandboxes.readonly import aliases_of, mounts_of
from sandboxes.roots import Roots
from sandboxes.sandbox import ExecResult, SandboxSpec, require
from sandboxes.session import Dialogue, Kind
from sandboxes.spawner import cgroups
from sandboxes.workspace import read_file, write_file
from schemas.errors import SandboxError
from schemas.ids import new_id

CAPABILITIES = frozenset({"aliases", "deadline", "files", "host_network", "images", "network", "non_root",
                          "output_limit", "processes", "readonly", "session", "setup", "snapshot"})
_DESCRIPTORS = 5 + len(script.SESSIONS)


class Met(NamedTuple):
    """How often a limit was met: processes killed for memory, processes refused."""

    oom: int
    pids: int


class BubblewrapBackend:
    """One spawner and its sandboxes. Thread-safe; a spawner that died is started again by the next acquire."""

    name = "bubblewrap"
    isolates = True

    def __init__(self, root: Path, artifacts: ArtifactStore) -> None:
        """Raises UnavailableError where bubblewrap or namespaces are missing."""
        self.root, self.artifacts = root, artifacts
        self.folder = reaper.OwnerFolder(root)
        self._lock = threading.Lock()
        self._open: set[BubblewrapSandbox] = set()
        try:
            self._spawner = Spawner(self.folder)
        except BaseException:
            self.folder.remove()
            raise
        reaper.sweep_cgroups(reaper.cgroup_folders(self._spawner.parents))
        self.lowers = Lowers(self.folder.path / "lower", artifacts, self._spawner.owner, self._spawner.lowers)
        self.roots = Roots(root, artifacts, self._spawner.owner, self._acquire)
        self._rounds = reaper.Rounds(self.reap)
        self.capabilities = CAPABILITIES.union(
            () if self._spawner.layer_on_disk else ("workspace_limit",),
            ("memory", "pids", "oom") if self._spawner.parents else ())

    def acquire(self, spec: SandboxSpec) -> BubblewrapSandbox:
        require(spec, self.name, self.capabilities)
        self._rounds.tick()
        return self._acquire(spec)

    def identify(self, image: str) -> str:
        """What events call an image. Raises SandboxError (kind `image`)."""
        return self.roots.identify(image)

    def _acquire(self, spec: SandboxSpec, half: Path | None = None) -> BubblewrapSandbox:
        try:
            spec, root = self.roots.resolve(spec, half)
            try:
                sandbox = self._stand_on(self.lowers.take(spec), spec, root)
            except ConnectionError:  # the spawner had died, and what it held in memory with it
                self._restart()
                sandbox = self._stand_on(self.lowers.take(spec), spec, root)
        except OSError as wrong:
            raise SandboxError(f"sandbox cannot be started: {wrong}", kind="sandbox_start") from None
        with self._lock:
            self._open.add(sandbox)
        return sandbox

    def _stand_on(self, lower: Lower, spec: SandboxSpec, root: dict[str, Any] | None) -> BubblewrapSandbox:
        try:
            return self._start(spec, lower, root)
        except BaseException:
            self.lowers.release(lower)
            raise

    def _start(self, spec: SandboxSpec, lower: Lower, root: dict[str, Any] | None) -> BubblewrapSandbox:
        limits = spec.limits
        name, born_ns = new_id(), now_ns()
        message = {
            "id": name, "lower": lower.inside, "lease_s": spec.lease_s, "memory_mb": limits.memory_mb,
            "pids": limits.pids, "workspace_mb": limits.workspace_mb, "root": root,
            "readonly": mounts_of(spec, self.owner is not None), "aliases": aliases_of(spec)}
        channel = self._spawner.acquire(message)
        try:
            environment = environment_of(spec.environment, PATH)
            return BubblewrapSandbox(self, name, spec, lower, channel, environment, born_ns)
        except BaseException:
            self._remove_layer(name)
            raise

    def _restart(self) -> None:
        with self._lock:
            if self._spawner.gone():
                self._spawner = Spawner(self.folder)
                self.lowers.move(self._spawner.lowers)

    @property
    def open_count(self) -> int:
        """Sandboxes that have not been closed."""
        with self._lock:
            return len(self._open)

    @property
    def spawner_pid(self) -> int:
        return self._spawner.pids[0]

    @property
    def spawner_pids(self) -> list[int]:
        return self._spawner.pids

    @property
    def parents(self) -> cgroups.Parents | None:
        return self._spawner.parents

    @property
    def owner(self) -> tuple[int, int] | None:
        return self._spawner.owner

    def forget(self, sandbox: BubblewrapSandbox) -> None:
        with self._lock:
            if sandbox not in self._open:
                return
            self._open.discard(sandbox)
        self._remove_layer(sandbox.id)
        self.lowers.release(sandbox.lower)

    def _remove_layer(self, name: str) -> None:
        if self._spawner.layer_on_disk:
            reaper.remove_tree(self.folder.path / "lives" / name)

    def reap(self) -> int:
        self.roots.reap()
        return reaper.reap(self.root)

    def close(self) -> None:
        """Ends all sandboxes that are still open."""
        self._rounds.close()
        for sandbox in list(self._open):
            sandbox.close()
        self._spawner.close()
        self.lowers.shelf.close()
        for path in reaper.cgroup_folders(self._spawner.parents):
            reaper.remove_cgroup(Path(path))
        self.roots.close()
        self.folder.remove()


class BubblewrapSandbox:
    """One life. `close` may come from another thread while `exec` waits: the command dies with the sandbox."""

    backend = "bubblewrap"

    def __init__(self, owner: BubblewrapBackend, name: str, spec: SandboxSpec, lower: Lower, channel: Channel,
                 environment: Mapping[str, str], born_ns: int) -> None:
        self.id = name
        self.lower = lower
        self.initial = lower.digest
        """Digest of the workspace as it was handed out."""
        self.skipped: list[bytes] = []
        """What the last snapshot left out: sockets, pipes, devices."""
        self.changing: list[bytes] = []
        """What changed while the last snapshot read it."""
        self.lost = lower.lost
        """What has not got all of its attributes back, as the file system did not take them."""
        self.read_bytes = 0
        """How much the last snapshot had to read."""
        self._base = Base(lower.files, born_ns)
        self._backend, self._spec, self._channel, self._environment = owner, spec, channel, environment
        self._busy = threading.Lock()
        """Held by whoever uses the descriptors."""
        self._gate = threading.Lock()
        """Held while the spawner is asked for something."""
        self._closed = self._broken = False
        self._agent: Agent | None = None
        self._workspace = -1
        self._counted = Met(0, 0)
        try:
            self._boot(channel.answer())
        except BaseException:
            self._release()
            channel.close()
            raise

    def exec(self, argv: Sequence[str], *, deadline_s: float = 30.0, stdin: bytes = b"",
             environment: Mapping[str, str] | None = None, cwd: str | None = None) -> ExecResult:
        if refusal := script.refusal(argv, cwd or "", environment or {}):
            return refusal
        with self._busy:
            agent = self._living_agent()
            line = script.command(argv, cwd or "", environment or {}, bool(stdin), sweep=not agent.started)
            return self._ended(agent, agent.run(line, stdin, deadline_s), "its agent died")

    def session(self, kind: Kind, state: bytes = b"") -> BubblewrapSession:
        return BubblewrapSession(self, Dialogue(kind, state))

    def converse(self, dialogue: Dialogue, text: str, deadline_s: float) -> ExecResult:
        """One call of a session."""
        with self._busy:
            agent = self._living_agent()
            if failed := dialogue.begin(agent):
                return self._ended(agent, failed, f"its {dialogue.kind} does not start")
            run = dialogue.say(agent, text, deadline_s)
            if run.cause == "died":  # Killed by what it ran: that is the command's doing.
                self._kill(agent, run)
                return run.result(*self._limits_met())
            return self._ended(agent, run, "")

    def _ended(self, agent: Agent, run: Run, died: str) -> ExecResult:
        if run.cause:
            self._kill(agent, run)
        met = self._limits_met()
        # An agent that had no memory or no process left is no broken one; without a cgroup nothing tells them apart.
        if run.cause == "died" and self._backend.parents and not any(met):
            self._broken = True
            raise SandboxError(f"the sandbox broke: {died}", value=self.id)
        return run.result(*met)

    def read(self, path: str, limit_bytes: int = 16 << 20) -> bytes:
        with self._busy:
            return read_file(self._folder(), path, limit_bytes)

    def write(self, path: str, data: bytes) -> None:
        with self._busy:
            write_file(self._folder(), path, data, self._backend.owner)

    def snapshot(self) -> str:
        with self._busy:
            captured = capture(self._folder(), self._backend.artifacts, self._base)
        self.skipped, self.changing, self.read_bytes = captured.skipped, captured.changing, captured.read_bytes
        return store(captured, self._backend.artifacts)

    def close(self) -> None:
        with self._gate:
            if self._closed:
                return
            self._closed = True
            # The kernel takes the mounts apart when the last process ends: let no descriptor of ours delay it.
            idle = self._busy.acquire(blocking=False)
            if idle:
                self._release()
                self._busy.release()
            self._channel.close()
        if not idle:
            with self._busy:
                self._release()
        self._backend.forget(self)

    def _boot(self, descriptors: list[int]) -> None:
        if len(descriptors) != _DESCRIPTORS:
            for descriptor in descriptors:
                os.close(descriptor)
            raise SandboxError("descriptors ran out", kind="sandbox_start", hint="raise `ulimit -n`")
        *ends, workspace = descriptors
        if self._workspace >= 0:
            os.close(self._workspace)
        self._workspace = workspace
        self._agent = Agent(ends, self._spec.limits.output_kb, script.prologue(
            self._spec.limits, self._environment, rlimits=self._backend.parents is None))
        self._agent.wait_until_ready()

    def _living_agent(self) -> Agent:
        """The agent; a new one over the same upper layer when the last command had to be killed."""
        if self._broken:
            raise SandboxError("the sandbox broke before", value=self.id)
        if self._agent is None:
            self._boot(self._ask("start"))
        assert self._agent is not None
        return self._agent

    def _ask(self, wanted: str) -> list[int]:
        with self._gate:
            if self._closed:
                raise SandboxError("sandbox is closed", kind="sandbox_closed", value=self.id)
            return self._channel.ask(wanted)

    def _folder(self) -> int:
        if self._closed:
            raise SandboxError("sandbox is closed", kind="sandbox_closed", value=self.id)
        return self._workspace

    def _kill(self, agent: Agent, run: Run) -> None:
        """When this returns no process of the sandbox is left, and all that they had written is in `run`."""
        self._ask("kill")
        agent.finish(run)
        agent.close()
        self._agent = None

    def _limits_met(self) -> tuple[bool, bool]:
        """Whether memory or processes ran out since this was asked last."""
        parents, name = self._backend.parents, self._channel.name
        if not parents:
            return False, False
        before, now = self._counted, Met(cgroups.oom_kills(parents, name), cgroups.refused_forks(parents, name))
        self._counted = now
        return now.oom > before.oom, now.pids > before.pids

    def _release(self) -> None:
        if self._agent is not None:
            self._agent.close()
            self._agent = None
        if self._workspace >= 0:
            os.close(self._workspace)
            self._workspace = -1


class BubblewrapSession:
    """A shell or a Python that stays in the sandbox. It ends with it."""

    def __init__(self, sandbox: BubblewrapSandbox, dialogue: Dialogue) -> None:
        self._sandbox, self._dialogue = sandbox, dialogue
        self.kind: Kind = dialogue.kind

    @property
    def lives(self) -> int:
        return self._dialogue.lives

    @property
    def state(self) -> bytes:
        return self._dialogue.state

    def run(self, text: str, *, deadline_s: float = 30.0) -> ExecResult:
        if refusal := script.session_refusal(self.kind, text):
            return refusal
        return self._sandbox.converse(self._dialogue, text, deadline_s)
