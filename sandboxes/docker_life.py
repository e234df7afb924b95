"""One container from nothing to a started sandbox, or back: its limits, its mounts, its keeper."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sandboxes import docker_reaper, docker_script, docker_seccomp, reaper
from sandboxes.docker_keeper import Keeper
from sandboxes.docker_sandbox import Start
from sandboxes.docker_view import View
from sandboxes.environment import environment_of
from sandboxes.manifest import Manifest
from sandboxes.readonly import aliases_of, mounts_of
from sandboxes.sandbox import SandboxSpec
from sandboxes.spawner.view import copy_readable
from sandboxes.workspace import INSIDE
from schemas.errors import SandboxError
from schemas.ids import new_id

if TYPE_CHECKING:
    from sandboxes.docker_backend import DockerBackend

_OWN_PROCESSES = 2
"""The engine's init and the keeper."""
_INODES = 200_000
_PAGE = 4096


class Life:
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
        self._root = -1

    def begin(self) -> Start:
        backend, spec, engine = self.backend, self.spec, self.backend.engine
        labels = docker_reaper.labels(backend.folder, spec.owner, spec.lease_s)
        self.folder.mkdir()
        self.container = engine.create(
            self.name, self.view.image, docker_script.keeper(), environment_of(spec.environment, self.view.path),
            labels, mounts=self._mounts(labels), **self._limits())
        self.keeper = Keeper(engine.attach(self.container))
        pid = engine.start(self.container)
        self._check_keeper(self.keeper)
        workspace = self._hold_root(pid, self.keeper) if backend.owner else self.folder / "workspace"
        return Start(self.id, self.container, self.folder, self.keeper, workspace, self.volumes)

    def _check_keeper(self, keeper: Keeper) -> None:
        if keeper.count() is None:
            raise SandboxError(f"sandbox cannot be started: {keeper.complaint or 'its shell does not answer'}",
                               kind="sandbox_start", value=self.spec.image or None)

    def _hold_root(self, pid: int, keeper: Keeper) -> Path:
        """The workspace by the container's own root. Its keeper lives after that was opened, so it is no other's."""
        self._root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._check_keeper(keeper)
        return Path(f"/proc/self/fd/{self._root}{INSIDE}")

    def let_go(self) -> None:
        """The root is not needed any longer: held, it would outlive the container."""
        if self._root >= 0:
            os.close(self._root)
            self._root = -1

    def undo(self) -> None:
        self.let_go()
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
