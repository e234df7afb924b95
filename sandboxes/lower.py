"""Lower layers: folders that hold a workspace's first state, read-only, shared by all sandboxes that start from it."""

from __future__ import annotations

import errno
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from artifacts.store import ArtifactStore
from sandboxes.manifest import NAME, Get, Manifest, encode, load
from sandboxes.reaper import remove_tree
from sandboxes.restore import Known, Owner, restore
from sandboxes.sandbox import SandboxSpec
from sandboxes.snapshot import EMPTY, keep_in, laid_over
from schemas.ids import digest

if TYPE_CHECKING:
    from sandboxes.helper import Shelf

IDLE_KEPT = 256
IDLE_KEPT_BYTES = 512 << 20
IDLE_SHELVED_BYTES = 64 << 20
SHELVED_BYTES = 64 << 20
"""A larger one does not go on the shelf."""
_PAGE = 4096


def manifest_for(spec: SandboxSpec, artifacts: ArtifactStore) -> tuple[str, Manifest, dict[str, bytes]]:
    """Digest and manifest of the workspace that a spec asks for, and the content that is not in the store."""
    large: dict[str, bytes] = {}
    if spec.workspace and not spec.files:
        return spec.workspace, load(spec.workspace, artifacts), large
    base = load(spec.workspace, artifacts) if spec.workspace else EMPTY
    manifest = laid_over(spec.files, keep_in(large), base, artifacts.get)
    return digest(encode(manifest)), manifest, large


class Lower(msgspec.Struct):
    """A workspace's first state. `users` sandboxes stand on it now."""

    digest: str
    path: Path = Path()
    inside: str = ""
    """Where the spawner finds it."""
    shelf: Shelf | None = None
    size_bytes: int = 0
    files: dict[bytes, Known] = {}
    """Files as they were written."""
    lost: list[bytes] = []
    """Paths whose attributes the file system did not take."""
    users: int = 0
    ready: threading.Event = msgspec.field(default_factory=threading.Event)


class Lowers:
    """Makes lower layers by digest, and forgets the least recently used that nobody stands on. Thread-safe.

    Small ones go into memory (`shelf`), where a file costs a tenth of what it costs on disk, while there is room.
    """

    def __init__(self, root: Path, artifacts: ArtifactStore, owner: Owner, shelf: Shelf) -> None:
        self.root, self.artifacts, self.owner, self.shelf = root, artifacts, owner, shelf
        self._lock = threading.Lock()
        self._found: dict[str, Lower] = {}
        root.mkdir(exist_ok=True)

    def take(self, spec: SandboxSpec) -> Lower:
        """The layer of a spec; give it back with `release`. Raises ArtifactError or SandboxError."""
        large: dict[str, bytes] = {}
        manifest: Manifest | None = None
        if spec.workspace and not spec.files:
            name = spec.workspace  # read only if the layer is not there yet
        else:
            name, manifest, large = manifest_for(spec, self.artifacts)
        while True:
            with self._lock:
                lower = self._found.pop(name, None)
                ours = lower is None
                if lower is None:
                    lower = Lower(name)
                self._found[name] = lower
                lower.users += 1
            if ours:
                return self._make(lower, manifest, large)
            lower.ready.wait()
            if lower.size_bytes >= 0:
                return lower

    def _make(self, lower: Lower, manifest: Manifest | None, large: dict[str, bytes]) -> Lower:
        try:
            manifest = manifest or load(lower.digest, self.artifacts)
            lower.size_bytes = sum(_PAGE + entry.size for entry in manifest.entries if entry.kind != NAME)
            self._write(lower, manifest, lambda name: large.get(name) or self.artifacts.get(name))
        except BaseException:
            with self._lock:
                self._found.pop(lower.digest, None)
                lower.size_bytes = -1
            raise
        finally:
            lower.ready.set()
        return lower

    def _write(self, lower: Lower, manifest: Manifest, get: Get) -> None:
        """On the shelf if it is small and there is room, else on disk."""
        shelf, name = self.shelf, lower.digest.rpartition(":")[2]
        if lower.size_bytes <= SHELVED_BYTES:
            lower.shelf, lower.path, lower.inside = shelf, shelf.path / name, f"{shelf.inside}/{name}"
            try:
                self._fill(lower, manifest, get)
                return
            except OSError as wrong:
                if wrong.errno != errno.ENOSPC:
                    raise
        lower.shelf, lower.path = None, self.root / name
        lower.inside = str(lower.path)
        self._fill(lower, manifest, get)

    def _fill(self, lower: Lower, manifest: Manifest, get: Get) -> None:
        lower.path.mkdir()
        try:
            lower.files, lower.lost = restore(manifest, get, lower.path, self.owner)
        except BaseException:
            remove_tree(lower.path)
            raise

    def move(self, shelf: Shelf) -> None:
        """Another spawner, another shelf: what was on the old one is gone with the last sandbox over it."""
        with self._lock:
            self._found = {name: lower for name, lower in self._found.items() if lower.shelf is None}
            self.shelf = shelf

    def release(self, lower: Lower) -> None:
        with self._lock:
            lower.users -= 1
            gone = self._surplus(None, IDLE_KEPT_BYTES) + self._surplus(self.shelf, IDLE_SHELVED_BYTES)
            for one in gone:
                del self._found[one.digest]
                one.path.rename(one.path.with_suffix(".gone"))
        for one in gone:
            remove_tree(one.path.with_suffix(".gone"))

    def _surplus(self, shelf: Shelf | None, kept_bytes: int) -> list[Lower]:
        idle = [one for one in self._found.values() if one.users == 0 and one.shelf is shelf]
        size, gone = sum(one.size_bytes for one in idle), 0
        while len(idle) - gone > IDLE_KEPT or size > kept_bytes:
            size -= idle[gone].size_bytes
            gone += 1
        return idle[:gone]
