"""Backend `docker`: a sandbox is a container of the engine on this machine, made for it and removed with it.

Its first process is a keeper that kills and counts; commands start beside it as an ordinary user. The container ends
when its owner does, however that ends: the keeper's input is the owner's connection, and the engine removes what has
ended. The workspace is a tmpfs of its size where we are root and can reach it, else a folder of ours.
"""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

from artifacts.store import ArtifactStore
from sandboxes import docker_reaper, docker_script, reaper
from sandboxes.docker_engine import Engine
from sandboxes.docker_life import Life
from sandboxes.docker_sandbox import DockerSandbox
from sandboxes.docker_view import View, host_view, image_view
from sandboxes.lower import manifest_for
from sandboxes.restore import restore
from sandboxes.sandbox import HOST, SandboxSpec, require
from schemas.errors import SandboxError

CAPABILITIES = frozenset({"aliases", "deadline", "files", "host_network", "images", "network", "non_root",
                          "output_limit", "processes", "readonly", "session", "snapshot"})
_USER = 1000


class DockerBackend:
    """Thread-safe."""

    name = "docker"
    isolates = True

    def __init__(self, root: Path, artifacts: ArtifactStore) -> None:
        """Raises UnavailableError where no engine answers."""
        self.artifacts = artifacts
        self.engine = Engine()
        info = self.engine.info
        self.capabilities = CAPABILITIES.union(
            ("memory", "oom") if info.get("MemoryLimit") else (), ("pids",) if info.get("PidsLimit") else ())
        self.root = root
        self.folder = reaper.OwnerFolder(root)
        self._rounds = reaper.Rounds(self._reap_quietly)
        self.owner = None if os.geteuid() else (_USER, _USER)
        """Whose the files of a workspace are; None where that is simply us."""
        self.user = ":".join(map(str, self.owner or (os.geteuid(), os.getegid())))
        self._lock = threading.Lock()
        self._open: set[DockerSandbox] = set()
        self._views: dict[str, View] = {}

    def identify(self, image: str) -> str:
        """What events call an image. Raises SandboxError (kind `image`)."""
        return self.view(image).image if image else HOST

    def acquire(self, spec: SandboxSpec) -> DockerSandbox:
        self._rounds.tick()
        require(spec, self.name, self.capabilities)
        for key, value in spec.environment.items():
            if not docker_script.is_plain(key, value):
                raise SandboxError("the engine cannot hold this variable", kind="sandbox_start", where=key, value=value)
        view = self.view(spec.image)
        initial, manifest, large = manifest_for(spec, self.artifacts)
        life = Life(self, spec, view, manifest)
        try:
            with self.engine.told("sandbox cannot be started", "sandbox_start"):
                start = life.begin()
            restore(manifest, lambda name: large.get(name) or self.artifacts.get(name), start.workspace, self.owner)
            sandbox = DockerSandbox(self, spec, initial, start)
            life.let_go()
        except OSError as wrong:
            life.undo()
            raise SandboxError(f"sandbox cannot be started: {wrong.strerror or wrong}", kind="sandbox_start") from None
        except BaseException:
            life.undo()
            raise
        with self._lock:
            self._open.add(sandbox)
        return sandbox

    def view(self, image: str = "") -> View:
        """What a container of this image sees as its root. Raises SandboxError (kind `image`)."""
        with self._lock:
            if image not in self._views:
                self._views[image] = image_view(self.engine, image) if image else host_view(self.engine)
            return self._views[image]

    @property
    def open_count(self) -> int:
        """Sandboxes that have not been closed."""
        with self._lock:
            return len(self._open)

    def forget(self, sandbox: DockerSandbox) -> None:
        with self._lock:
            self._open.discard(sandbox)

    def reap(self) -> int:
        return reaper.reap(self.root) + docker_reaper.reap(self.engine)

    def _reap_quietly(self) -> None:
        with contextlib.suppress(SandboxError):  # an engine that fails now is asked again in the next round
            self.reap()

    def close(self) -> None:
        """Ends all sandboxes that are still open."""
        self._rounds.close()
        for sandbox in list(self._open):
            sandbox.close()
        self.engine.close()
        self.folder.remove()
