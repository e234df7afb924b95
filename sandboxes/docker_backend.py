"""Backend `docker`: a sandbox is a container of the engine on this machine, made for it and removed with it.

Its first process is a keeper that kills and counts; commands start beside it as an ordinary user. The container ends
when its owner does, however that ends: the keeper's input is the owner's connection, and the engine removes what has
ended. The workspace is a tmpfs of its size where we are root and can reach it, else a folder of ours.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from artifacts.store import ArtifactStore
from sandboxes import docker_reaper, docker_script, docker_seccomp, reaper
from sandboxes.docker_engine import Engine
from sandboxes.docker_keeper import Keeper
from sandboxes.docker_sandbox import DockerSandbox, Start
from sandboxes.docker_view import View, host_view, image_view
from sandboxes.environment import environment_of
from sandboxes.lower import manifest_for
from sandboxes.manifest import Manifest
from sandboxes.readonly import aliases_of, mounts_of
from sandboxes.restore import restore
from sandboxes.sandbox import HOST, SandboxSpec, require
from sandboxes.spawner.view import copy_readable
from sandboxes.workspace import INSIDE
from schemas.errors import SandboxError
from schemas.ids import new_id

CAPABILITIES = frozenset({"aliases", "deadline", "files", "host_network", "images", "network", "non_root",
                          "output_limit", "processes", "readonly", "session", "snapshot"})
_USER = 1000
_OWN_PROCESSES = 2
"""The engine's init and the keeper."""
_INODES = 200_000
_PAGE = 4096


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
        life = _Life(self, spec, view, manifest)
        try:
            with self.engine.told("sandbox cannot be started", "sandbox_start"):
                start = life.begin()
            restore(manifest, lambda name: large.get(name) or self.artifacts.get(name), start.workspace, self.owner)
            sandbox = DockerSandbox(self, spec, initial, start)
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


class _Life:
    """Makes one container, or undoes what was made of it."""

    def __init__(self, backend: DockerBackend, spec: SandboxSpec, view: View, manifest: Manifest) -> None:
        self.backend, self.spec, self.view = backend, spec, view
        self.id = new_id()
        self.name = f"headrace-{self.id}"
        self.folder = backend.folder.path / self.id
        self.aliases = aliases_of(spec)
        self.readonly = mounts_of(spec, backend.owner is not None)
        content = sum(entry.size + _PAGE for entry in manifest.entries)
        self.workspace_bytes = (spec.limits.workspace_mb << 20) + content
        self.volumes = [self.name] if backend.owner and self.aliases else []
        """A volume with a name is not removed with its container."""
        self.container = ""
        self.keeper: Keeper | None = None

    def begin(self) -> Start:
        backend, spec, engine = self.backend, self.spec, self.backend.engine
        labels = docker_reaper.labels(backend.folder, spec.owner, spec.lease_s)
        self.folder.mkdir()
        self.container = engine.create(
            self.name, self.view.image, docker_script.keeper(), environment_of(spec.environment, self.view.path),
            labels, mounts=self._mounts(labels), **self._limits())
        self.keeper = Keeper(engine.attach(self.container))
        pid = engine.start(self.container)
        if self.keeper.count() is None:
            raise SandboxError(f"sandbox cannot be started: {self.keeper.complaint or 'its shell does not answer'}",
                               kind="sandbox_start", value=self.spec.image or None)
        workspace = Path(f"/proc/{pid}/root{INSIDE}") if backend.owner else self.folder / "workspace"
        return Start(self.id, self.container, self.folder, self.keeper, workspace, self.volumes)

    def undo(self) -> None:
        if self.keeper is not None:
            self.keeper.close()
        if self.container:
            with contextlib.suppress(SandboxError), self.backend.engine.told("sandbox cannot be removed"):
                self.backend.engine.remove(self.container, self.volumes)
        reaper.remove_tree(self.folder)

    def _limits(self) -> dict[str, Any]:
        limits, info = self.spec.limits, self.backend.engine.info
        megabytes = limits.workspace_mb
        found: dict[str, Any] = {
            "init": True, "auto_remove": True, "read_only": True, "cap_drop": ["ALL"], "cap_add": ["KILL"],
            "security_opt": ["no-new-privileges", *docker_seccomp.options(str(info.get("ServerVersion")))],
            "log_config": {"Type": "none"}, "ipc_mode": "private", "network_mode": self.spec.network,
            "mem_limit": limits.memory_mb << 20, "pids_limit": limits.pids + _OWN_PROCESSES,
            "shm_size": megabytes << 20,
            "tmpfs": {"/tmp": f"rw,exec,nosuid,nodev,mode=1777,size={megabytes}m,nr_inodes={_INODES}"}}
        if self.spec.network == "none":
            found["dns"], found["dns_search"] = ["127.0.0.1"], ["."]  # not what the host's file says
        if info.get("SwapLimit"):
            found["memswap_limit"] = found["mem_limit"]
        if info.get("CgroupVersion") == "2":
            found["cgroupns"] = "private"
        return found

    def _mounts(self, labels: dict[str, str]) -> list[Any]:
        from docker.types import Mount

        found = [self._workspace(target, labels) for target in (INSIDE, *self.aliases)]
        programs: Sequence[tuple[str, str]] = [*self.view.programs, *self._given()]
        return found + [Mount(target, source, type="bind", read_only=True) for source, target in programs]

    def _workspace(self, target: str, labels: dict[str, str]) -> Any:
        from docker.types import DriverConfig, Mount

        if self.backend.owner is None:
            path = self.folder / "workspace"
            path.mkdir(exist_ok=True)
            return Mount(target, str(path), type="bind")
        user, group = self.backend.owner
        options = (f"size={self.workspace_bytes},nr_inodes={_INODES},mode=0755,uid={user},gid={group},nosuid,nodev")
        driver = DriverConfig("local", {"type": "tmpfs", "device": "tmpfs", "o": options})
        name = self.volumes[0] if self.volumes else None
        return Mount(target, name, type="volume", no_copy=True, driver_config=driver, labels=labels)

    def _given(self) -> list[tuple[str, str]]:
        """Read-only mounts of the spec; copies of what the sandbox's user could not read."""
        found = []
        for number, (inside, source, copied) in enumerate(self.readonly):
            if copied:
                if self.folder.is_relative_to(source):
                    raise SandboxError("a folder that holds the sandboxes' own cannot be copied into one",
                                       kind="sandbox_start", where=inside, value=source)
                copy_readable(source, str(self.folder / f"readonly-{number}"))
                source = str(self.folder / f"readonly-{number}")
            found.append((source, inside))
        return found
