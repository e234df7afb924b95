"""Lower layers: folders that hold a workspace's first state, read-only, shared by all sandboxes that start from it."""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec

from artifacts.store import ArtifactStore
from sandboxes.manifest import Manifest, encode, load
from sandboxes.reaper import remove_tree
from sandboxes.restore import Known, Owner, restore
from sandboxes.sandbox import SandboxSpec
from sandboxes.snapshot import EMPTY, keep_in, laid_over
from schemas.ids import digest

IDLE_KEPT = 256
IDLE_KEPT_BYTES = 512 << 20


def manifest_for(spec: SandboxSpec, artifacts: ArtifactStore) -> tuple[str, Manifest, dict[str, bytes]]:
    """Digest and manifest of the workspace that a spec asks for, and the content that is not in the store."""
    large: dict[str, bytes] = {}
    if spec.workspace and not spec.files:
        return spec.workspace, load(spec.workspace, artifacts), large
    base = load(spec.workspace, artifacts) if spec.workspace else EMPTY
    manifest = laid_over(spec.files, keep_in(large), base)
    return digest(encode(manifest)), manifest, large


class Lower(msgspec.Struct):
    """A workspace's first state on disk. `users` sandboxes stand on it now."""

    digest: str
    path: Path
    size_bytes: int = 0
    files: dict[bytes, Known] = {}
    """Files as they were written."""
    lost: list[bytes] = []
    """Paths whose attributes the disk did not take."""
    users: int = 0
    ready: threading.Event = msgspec.field(default_factory=threading.Event)


class Lowers:
    """Makes lower layers by digest, and forgets the least recently used that nobody stands on. Thread-safe."""

    def __init__(self, root: Path, artifacts: ArtifactStore, owner: Owner) -> None:
        self.root, self.artifacts, self.owner = root, artifacts, owner
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
                    lower = Lower(name, self.root / name.rpartition(":")[2])
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
            lower.path.mkdir()
            lower.files, lower.lost = restore(
                manifest, lambda name: large.get(name) or self.artifacts.get(name), lower.path, self.owner)
            lower.size_bytes = sum(entry.size for entry in manifest.entries)
        except BaseException:
            with self._lock:
                self._found.pop(lower.digest, None)
                lower.size_bytes = -1
            remove_tree(lower.path)
            raise
        finally:
            lower.ready.set()
        return lower

    def release(self, lower: Lower) -> None:
        with self._lock:
            lower.users -= 1
            idle = [one for one in self._found.values() if one.users == 0]
            size = sum(one.size_bytes for one in idle)
            gone: list[Lower] = []
            for one in idle:
                if len(idle) - len(gone) <= IDLE_KEPT and size <= IDLE_KEPT_BYTES:
                    break
                gone.append(self._found.pop(one.digest))
                size -= one.size_bytes
                one.path.rename(one.path.with_suffix(".gone"))
        for one in gone:
            remove_tree(one.path.with_suffix(".gone"))
