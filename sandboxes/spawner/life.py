"""One sandbox as the spawner sees it: its mounts, its cgroup, its bubblewrap process."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import socket
import time
from typing import Any, NamedTuple

from sandboxes.spawner import cgroups, mounts, wire
from sandboxes.spawner.ends import Ends
from sandboxes.spawner.layered import LayeredRoot
from sandboxes.spawner.view import AGENT_FOLDER, WORKSPACE, Root, View, copy_readable

INSIDE_USER = 1000
NOBODY = 65534
_DOORS, _INFO, _SECCOMP = (6, 7), 10, 11


_DEFAULTED = [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGTERM, signal.SIGXFSZ]
"""What an owner ignores (under nohup, say) its commands would ignore too, and a shell cannot undo it."""


class Host(NamedTuple):
    """What all lives of a spawner share."""

    bwrap: str
    stage: str
    state: str
    unprivileged: bool
    layer_on_disk: bool
    parents: cgroups.Parents | None
    view: View
    seccomp: int
    setup_seccomp: int
    """For set-up commands."""
    null: int

    @property
    def lowers(self) -> str:
        """A tmpfs for lower layers, which the owner fills through a descriptor of it."""
        return f"{self.stage}/lowers"

    @property
    def user(self) -> int:
        """Who runs bubblewrap: never root, whose mere uid opens /proc/sys for writing, capabilities or not."""
        return os.geteuid() if self.unprivileged else NOBODY

    @property
    def group(self) -> int:
        return os.getegid() if self.unprivileged else NOBODY


class Life:
    """From its namespaces to its end. Nobody's until `claim`; `waiting` is the request that is not answered yet."""

    def __init__(self, name: str, host: Host) -> None:
        self.name, self.host = name, host
        self.channel: socket.socket | None = None
        self.spec: dict[str, Any] = {}
        self.folder = f"{host.stage}/life"
        """Where this sandbox's layers are, in its own mount namespace; other namespaces have nothing there."""
        self.namespace = self.workspace = -1
        self.expires = math.inf
        self.waiting = ""
        self.outer_pid = 0
        self.outer = self.inner = self.info = -1
        self.said = b""
        self.ends: list[int] = []
        self.view: Root = host.view

    def prepare(self) -> None:
        """What every sandbox has, in the mount namespace that we are in: an empty layer, the cgroup."""
        host = self.host
        self.namespace = mounts.current_namespace()
        if host.layer_on_disk:
            os.makedirs(f"{host.state}/lives/{self.name}")
            mounts.bind(f"{host.state}/lives/{self.name}", self.folder)
        else:
            mounts.mount_layer(self.folder, 1)
        os.mkdir(f"{self.folder}/work")
        for name, mode in (("upper", 0o755), ("tmp", 0o1777), ("shm", 0o1777)):
            path = f"{self.folder}/{name}"
            os.mkdir(path)
            os.chown(path, host.user, host.group)
            os.chmod(path, mode)
        view = self.view = self._root()
        view.furnish(self.folder)
        mounts.spread(view.path)
        if host.parents:
            cgroups.make(host.parents, self.name)

    def claim(self, channel: socket.socket, spec: dict[str, Any]) -> None:
        """Somebody wants it; the request waits."""
        self.channel, self.spec, self.waiting = channel, spec, "start"
        self.expires = time.monotonic() + float(spec["lease_s"])

    def fill(self) -> None:
        """What was asked of this one: limits, workspace, mounts. Its processes see them too, if there are any yet."""
        host, spec, view = self.host, self.spec, self.view
        if host.parents:
            cgroups.limit(host.parents, self.name, spec["memory_mb"], spec["pids"])
        if host.layer_on_disk:
            os.rename(f"{host.state}/lives/{self.name}", f"{host.state}/lives/{spec['id']}")
        else:
            mounts.resize_layer(self.folder, spec["workspace_mb"])
        lower = spec["lower"]
        os.chmod(f"{self.folder}/upper", os.stat(lower).st_mode & 0o7777 | 0o700)
        mounts.mount_overlay([lower], f"{self.folder}/upper", f"{self.folder}/work", view.path + WORKSPACE,
                             host.unprivileged, index=True)
        self.workspace = os.open(view.path + WORKSPACE, os.O_RDONLY | os.O_DIRECTORY)
        for number, (inside, source, copied) in enumerate(spec["readonly"]):
            if copied:
                copy_readable(source, f"{self.folder}/readonly-{number}")
                source = f"{self.folder}/readonly-{number}"
            view.bring(source, inside)
        for alias in spec["aliases"]:
            view.bring(view.path + WORKSPACE, alias, mounts.NOSUID | mounts.NODEV)

    def _root(self) -> Root:
        """What it sees as `/`: the shared view, or one of its own where it has an image, a layer or a network."""
        host, spec = self.host, self.spec
        if not spec.get("root"):
            return host.view
        brought = [(source, inside) for inside, source, _ in spec["readonly"]]
        brought += [(host.view.path + WORKSPACE, alias) for alias in spec["aliases"]]
        return LayeredRoot(self.folder, spec["root"], host.view, (host.user, host.group), host.unprivileged, brought)

    def spawn(self) -> None:
        """Start bubblewrap with the agent in it, which has started when it has told the agent's process id."""
        host = self.host
        given: list[tuple[int, int]] = []
        try:
            wanted = host.setup_seccomp if self._sets_up() else host.seccomp
            if wanted >= 0:
                given.append((os.open(f"/proc/self/fd/{wanted}", os.O_RDONLY), _SECCOMP))
            doors = list(zip(cgroups.doors(host.parents, self.name), _DOORS, strict=False)) if host.parents else []
            given += doors
            self.info, info_end = os.pipe()
            given.append((info_end, _INFO))
            self._give([number for _, number in doors], given)
        finally:
            for descriptor, _ in given:
                os.close(descriptor)
        self.said = b""
        self.outer = os.pidfd_open(self.outer_pid)

    def _give(self, doors: list[int], given: list[tuple[int, int]]) -> None:
        """Start it with its ends of the streams, and what else it is given at which numbers."""
        ends = Ends()
        self.ends = ends.ours
        for number in doors:  # the agent's first lines, before any of its owner's
            os.write(ends.ours[0], b"echo 0 >&%d&&exec %d>&-||exit\n" % (number, number))
        try:
            self.outer_pid = self._posix_spawn(
                [(os.POSIX_SPAWN_DUP2, held, number) for held, number in (*ends.theirs, (self.host.null, 1), *given)])
        finally:
            ends.handed_over()

    def _posix_spawn(self, actions: list[tuple[int, ...]]) -> int:
        host = self.host
        if not host.unprivileged:
            os.setresgid(NOBODY, NOBODY, 0)
            os.setresuid(NOBODY, NOBODY, 0)
        try:
            return os.posix_spawn(host.bwrap, self._arguments(), {"PATH": AGENT_FOLDER}, file_actions=actions,
                                  setsigdef=_DEFAULTED)
        finally:
            if not host.unprivileged:
                os.setresuid(0, 0, 0)
                os.setresgid(0, 0, 0)

    def _arguments(self) -> list[str]:
        host, root = self.host, self.spec.get("root")
        # Set-up commands are root by name, without any of its capabilities.
        user = "0" if self._sets_up() else str(INSIDE_USER)
        return [
            host.bwrap, "--unshare-all", *(["--share-net"] if root and root["network"] else []),
            "--unshare-user", "--uid", user, "--gid", user,
            "--hostname", "sandbox", "--new-session", "--as-pid-1", "--cap-drop", "ALL",
            "--dev-bind", self.view.path, "/", "--proc", "/proc",
            # A user whose host uid is 0 could write there, whatever its capabilities.
            "--ro-bind", "/proc/sys", "/proc/sys",
            *(["--seccomp", str(_SECCOMP)] if host.seccomp >= 0 else []),
            "--chdir", WORKSPACE, "--info-fd", str(_INFO), "--", "sh"]

    def _sets_up(self) -> bool:
        root = self.spec.get("root")
        return bool(root and root["half"])

    def read_info(self) -> int:
        """Read what bubblewrap says about itself: the agent's process id; 0: not yet said, -1: it says no more.

        The rest of what it says waits in the pipe, which stays open for it.
        """
        data = os.read(self.info, 4096)
        self.said += data
        _, found, rest = self.said.partition(b'"child-pid":')
        pid, ended, _ = rest.partition(b",")
        if found and ended:
            return int(pid)
        return 0 if data else -1

    def adopt(self, pid: int) -> None:
        """Take hold of the agent's process."""
        self.inner = os.pidfd_open(pid)

    def let_go(self) -> None:
        """Hold nothing of its mounts any longer: the kernel takes them apart when its last process ends."""
        for descriptor in (self.workspace, self.namespace):
            if descriptor >= 0:
                os.close(descriptor)
        self.workspace = self.namespace = -1

    def kill(self) -> None:
        """Kill process 1, and the kernel kills all others with it before it lets go of it.

        While process 1 is not known yet nothing is done: bubblewrap's own process must not die before it has let
        process 1 go on, or that waits for ever.
        """
        if self.inner >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.inner, signal.SIGKILL)

    def reap(self) -> int:
        """The bubblewrap process has ended, so no process of this sandbox is left."""
        _, status = os.waitpid(self.outer_pid, 0)
        for descriptor in (self.outer, self.inner, self.info):
            if descriptor >= 0:
                os.close(descriptor)
        self.outer = self.inner = self.info = -1
        return status

    def reply(self, message: dict[str, Any], extra: list[int] | None = None) -> None:
        with contextlib.suppress(OSError):
            if self.channel:
                wire.send(self.channel, message, extra)

    def hand_over(self) -> None:
        """It runs: the agent's ends and the workspace are its owner's."""
        self.waiting = ""
        self.reply({"started": self.name}, [*self.ends, self.workspace])
        self.close_ends()

    def close_ends(self) -> None:
        while self.ends:
            os.close(self.ends.pop())

    def complaint(self) -> str:
        """What bubblewrap wrote before it gave up."""
        try:
            return os.read(self.ends[2], 4096).decode(errors="replace").strip() if self.ends else ""
        except OSError:
            return ""

    def dispose(self) -> None:
        """Everything goes: a namespace that no process and no descriptor holds takes its mounts with it."""
        self.close_ends()
        self.let_go()
        if self.info >= 0:
            os.close(self.info)
        if self.host.parents:
            cgroups.remove(self.host.parents, self.name)
        if self.channel:
            self.reply({"closed": True})
            self.channel.close()
