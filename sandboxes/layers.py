"""Layers: what set-up commands left of a root file system, made once and shared by all sandboxes that ask for the same.

The key is made of all that decides: the image, the commands and their files, network, environment, further paths. A
set-up that fails is told with its output and leaves nothing; whoever waited for it in this process is told the same.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import msgspec

from artifacts.store import ArtifactStore
from sandboxes.cache import Cache, Held
from sandboxes.reaper import remove_tree
from sandboxes.restore import Owner
from sandboxes.sandbox import ExecResult, Limits, Sandbox, SandboxSpec, Setup
from schemas import failpoints
from schemas.errors import SandboxError

LIMITS = Limits(memory_mb=4096, pids=1024, file_mb=16 << 10, workspace_mb=4096, output_kb=64)
"""Of set-up commands, which install things."""
ENVIRONMENT = {"HOME": "/tmp"}
"""Caches of installers go where nothing is kept."""
_ABOUT, _ROOT, _WORK = "layer.json", "root", "work"
_SNAPSHOT_S = 600.0
LEFT_BYTES = 1 << 30
"""A set-up that leaves less of the disk is stopped."""
_LOOK_S = 0.2
_SHOWN_BYTES = 2000
_HOST_FOLDERS = ("/usr/bin", "/usr/lib", "/usr/local/bin", "/usr/local/lib")
Start = Callable[[SandboxSpec, Path], Sandbox]
"""Starts a sandbox whose root can be written; what is written is kept in a folder."""


class Layer(NamedTuple):
    root: Path
    workspace: str
    """Digest of what the commands made of their files."""


class _About(msgspec.Struct, frozen=True):
    workspace: str


class Layers:
    """The layers of a home as one backend uses them. Thread-safe."""

    def __init__(self, folder: Path, artifacts: ArtifactStore, owner: Owner, start: Start) -> None:
        self.cache = Cache(folder)
        self._artifacts, self._owner, self._start = artifacts, owner, start
        self._lock = threading.Lock()
        self._known: dict[str, Future[Layer]] = {}
        self._held: list[Held] = []

    def take(self, spec: SandboxSpec, setup: Setup, image: str) -> Layer:
        """The layer of this set-up over the image of that digest. Raises SandboxError (kind `setup`)."""
        key = _key(spec, setup, image)
        with self._lock:
            known = self._known.get(key)
            if known and known.done() and not known.result().root.is_dir():
                known = None
            future = known or Future()
            self._known[key] = future
        if known:
            return known.result()
        try:
            layer = self._find_or_build(key, spec, setup)
        except BaseException as wrong:
            with self._lock:
                del self._known[key]
            future.set_exception(wrong)
            raise
        future.set_result(layer)
        return layer

    def close(self) -> None:
        with self._lock:
            self._known.clear()
            while self._held:
                self._held.pop().release()

    def _find_or_build(self, key: str, spec: SandboxSpec, setup: Setup) -> Layer:
        layer = self._find(key)
        if layer is None:
            with self.cache.alone(key):
                layer = self._find(key) or self._build(key, spec, setup)
        return layer

    def _find(self, key: str) -> Layer | None:
        held = self.cache.find(key)
        if held is None:
            return None
        about = msgspec.json.decode((held.path / _ABOUT).read_bytes(), type=_About)
        if not self._artifacts.has(about.workspace):
            held.release()
            self.cache.drop(key)
            return None
        with self._lock:
            self._held.append(held)
        return Layer(held.path / _ROOT, about.workspace)

    def _build(self, key: str, spec: SandboxSpec, setup: Setup) -> Layer:
        with self.cache.half() as half:
            for name in (_ROOT, _WORK):
                (half / name).mkdir(mode=0o755)
                if self._owner:
                    os.chown(half / name, *self._owner)
            wanted = SandboxSpec(
                image=spec.image, network=setup.network, files=setup.files, aliases=spec.aliases, limits=LIMITS,
                environment={**ENVIRONMENT, **spec.environment}, owner=f"setup:{key[:16]}",
                lease_s=setup.deadline_s + _SNAPSHOT_S)
            sandbox = self._start(wanted, half)
            try:
                with _Guard(half, sandbox):
                    _run(sandbox, setup)
                workspace = sandbox.snapshot()
            finally:
                sandbox.close()
            remove_tree(half / _WORK)
            (half / _ABOUT).write_bytes(msgspec.json.encode(_About(workspace)))
            failpoints.hit("layers:before_keep")
            self.cache.keep(half, key)
        layer = self._find(key)
        assert layer is not None
        return layer


class _Guard:
    """Ends a set-up that fills the disk: the home's log is on it too."""

    def __init__(self, folder: Path, sandbox: Sandbox) -> None:
        self._folder, self._sandbox = folder, sandbox
        self._over, self._full = threading.Event(), False
        self._thread = threading.Thread(target=self._watch, name="headrace-setup", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, kind: type[BaseException] | None, wrong: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
        if self._full:
            raise SandboxError(f"set-up was stopped: less than {LEFT_BYTES >> 20} MiB are left on the disk",
                               kind="setup", where=str(self._folder.parent)) from None

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_S):
            found = os.statvfs(self._folder)
            if found.f_bavail * found.f_frsize < LEFT_BYTES:
                self._full = True
                self._sandbox.close()
                return


def _run(sandbox: Sandbox, setup: Setup) -> None:
    deadline = time.monotonic() + setup.deadline_s
    for number, command in enumerate(setup.commands, 1):
        left = deadline - time.monotonic()
        result = sandbox.exec(["/bin/sh", "-c", command], deadline_s=max(left, 0.001))
        if result.exit_code != 0:
            raise SandboxError(
                f"set-up command {number} of {len(setup.commands)} {_how(result, setup.deadline_s)}: {command!r}; "
                f"its output ended: {_output(result)}", kind="setup",
                hint="" if setup.network == "host" else "set-up has no network unless it asks for the host's")


def _how(result: ExecResult, deadline_s: float) -> str:
    if result.timed_out:
        return f"took longer than the {deadline_s:g} s that set-up may take"
    if result.oom:
        return "ran out of memory"
    if result.output_limit:
        return "wrote too much output"
    return f"ended with exit code {result.exit_code}"


def _output(result: ExecResult) -> str:
    shown = (result.stdout + result.stderr)[-_SHOWN_BYTES:].decode(errors="replace").strip()
    return shown or "(nothing)"


def _key(spec: SandboxSpec, setup: Setup, image: str) -> str:
    decides = [
        "headrace.layer.v1", image or _host(), list(setup.commands), setup.network, sorted(setup.files.items()),
        sorted(spec.environment.items()), list(spec.aliases)]
    return hashlib.sha256(msgspec.msgpack.encode(decides)).hexdigest()


def _host() -> list[list[int]]:
    """The host's programs are no image with a digest: what a package manager changes whenever it changes them."""
    stats = [os.stat(folder) for folder in _HOST_FOLDERS if os.path.isdir(folder)]
    return [[found.st_dev, found.st_ino, found.st_mtime_ns] for found in stats]
