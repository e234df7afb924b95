"""The owner's side of the spawner: starts it, hands it requests, notices its death."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from sandboxes.interpreter import NAMES, interpreter
from sandboxes.reaper import OwnerFolder, cgroup_folders
from sandboxes.seccomp import seccomp_filter
from sandboxes.spawner import cgroups, wire
from schemas.errors import SandboxError, UnavailableError

REPLY_S = 30.0
"""No answer of the spawner for this long means that it is stuck."""
LOWERS_MB = 256
"""Lower layers that are kept in memory, all together."""
_START_S = 20.0
_BOOT = "import sys;sys.path.insert(0,sys.argv.pop());from sandboxes.spawner.loop import run;run()"
_ROOT = Path(__file__).resolve().parent.parent
HINT = ("install it with `apt-get install bubblewrap` (user namespaces must be allowed: "
        "`sysctl kernel.unprivileged_userns_clone=1`), or choose `--sandbox process`, which does not isolate")


class Spawner:
    """Helper processes (`pids`, which end together), and the parent of the first (`process`), which outlives it just so
    long as to tidy up.

    `owner`: user and group of the files of sandboxes; None where that is simply us.
    """

    def __init__(self, folder: OwnerFolder) -> None:
        bwrap = shutil.which("bwrap")
        if bwrap is None:
            raise UnavailableError("sandbox backend `bubblewrap` cannot run: no `bwrap` on the PATH", hint=HINT)
        self._main, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        flags = ["-I", "-S", *(["-B"] if sys.dont_write_bytecode else [])]
        setup = {"owner": os.getpid(), "lock": folder.lock, "token": folder.token, "state": str(folder.path),
                 "bwrap": bwrap, "python": interpreter(), "python_names": NAMES, "seccomp": seccomp_filter().hex(),
                 "setup_seccomp": seccomp_filter(one_owner=True).hex(),
                 "lowers_mb": LOWERS_MB}
        with theirs, (folder.path / "spawner.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *flags, "-c", _BOOT, json.dumps(setup), str(_ROOT)], stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL, stderr=log, pass_fds=(folder.lock,), env={"PATH": "/usr/bin:/bin"}, cwd="/",
                start_new_session=True)  # Ctrl-C is for its owner
        self._main.settimeout(_START_S)
        hello, descriptors = self._hello(folder)
        helpers = [self._hello(folder)[0] for _ in range(1 + hello["others"])]
        self._main.settimeout(None)
        helpers.sort(key=lambda helper: not helper["first"])
        self.pids: list[int] = [helper["pid"] for helper in helpers]
        self.owner = (hello["user"], hello["group"]) if os.geteuid() == 0 else None
        self.parents = cgroups.Parents(**hello["cgroups"]) if hello["cgroups"] else None
        self.layer_on_disk: bool = hello["layer_on_disk"]
        self.lowers = Shelf(descriptors[0], hello["lowers"])
        folder.record(cgroup_folders(self.parents))

    def _hello(self, folder: OwnerFolder) -> tuple[dict[str, Any], list[int]]:
        descriptors: list[int] = []
        try:
            hello, descriptors = wire.receive(self._main)
        except TimeoutError:
            hello = {"error": "its helper process does not answer"}
        if hello is None:
            log = (folder.path / "spawner.log").read_text(errors="replace").strip()
            hello = {"error": log.splitlines()[-1] if log else "its helper process ended at once"}
        if "error" in hello:
            self.close()
            raise UnavailableError(f"sandbox backend `bubblewrap` cannot run: {hello['error']}", hint=HINT)
        return hello, descriptors

    def acquire(self, message: dict[str, Any]) -> Channel:
        """Ask for a sandbox; its own channel. Raises ConnectionError when the spawner is gone."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                wire.send(self._main, message, [theirs.fileno()])
            except BaseException as wrong:
                ours.close()
                if self._main.fileno() < 0:  # another thread has found it gone
                    raise ConnectionResetError("the helper process of sandboxes has ended") from wrong
                raise
        ours.settimeout(REPLY_S)
        return Channel(ours)

    def gone(self) -> bool:
        """Whether it has ended, waiting for an end that is on its way."""
        try:
            self.process.wait(1.0)
        except subprocess.TimeoutExpired:
            return False
        self._main.close()
        return True

    def close(self) -> None:
        self._main.close()
        try:
            self.process.wait(REPLY_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Shelf:
    """A folder in the spawner's memory: `path` is our way there, `inside` is the spawner's. Gone when both are."""

    def __init__(self, descriptor: int, inside: str) -> None:
        self._descriptor = descriptor
        self.path, self.inside = Path(f"/proc/self/fd/{descriptor}"), inside

    def close(self) -> None:
        """Whatever is on it must not be used any more: the number may come back as another's."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    __del__ = close


class Channel:
    """Requests about one sandbox, one at a time. `name` is what its cgroup is called, once it has started."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self.name = ""

    def ask(self, wanted: str) -> list[int]:
        """`start` an agent (descriptors of its ends and of the workspace) or `kill` all processes."""
        try:
            wire.send(self._link, {"do": wanted})
        except OSError:
            raise SandboxError("the helper process of the sandbox is gone, or its lease has ended") from None
        return self.answer()

    def answer(self) -> list[int]:
        """Descriptors of the reply. Raises SandboxError with what went wrong."""
        try:
            message, descriptors = wire.receive(self._link, wire.REPLY_BYTES)
        except TimeoutError:
            raise SandboxError("the helper process of the sandbox does not answer", value=REPLY_S) from None
        if message is None:
            raise SandboxError("the helper process of the sandbox is gone, or its lease has ended")
        if "error" in message:
            raise SandboxError(f"sandbox cannot be started: {message['error']}", kind="sandbox_start")
        if "closed" in message:
            raise SandboxError("the lease of the sandbox has ended")
        self.name = message.get("started", self.name)
        return descriptors

    def close(self) -> None:
        """Ends the sandbox if it is still there; returns when no process and no mount of it is left."""
        with contextlib.suppress(OSError):
            wire.send(self._link, {"do": "close"})
            message: dict[str, Any] | None = {}
            while message is not None and "closed" not in message:
                # An answer that nobody waited for may come first.
                message, descriptors = wire.receive(self._link, wire.REPLY_BYTES)
                for descriptor in descriptors:
                    os.close(descriptor)
        self._link.close()
