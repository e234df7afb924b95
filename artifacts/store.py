"""The ArtifactStore contract and its directory backend.

An artifact is named by the SHA-256 of its bytes and never changes. `put` returns when the bytes are durable, so an
event may name them. Writing the same bytes twice costs nothing. `get` checks the digest: corrupt bytes never leave.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Protocol

from schemas.errors import ArtifactError
from schemas.events import ArtifactRef
from schemas.files import sync_folder, write_durably
from schemas.ids import DIGEST_PREFIX, digest, is_digest, new_id


class ArtifactStore(Protocol):
    def put(self, data: bytes, media_type: str = "application/octet-stream") -> ArtifactRef: ...

    def get(self, digest: str) -> bytes:
        """Raises ArtifactError if the artifact is missing or its bytes do not match."""
        ...

    def has(self, digest: str) -> bool: ...


class DirectoryStore:
    """`root/ab/abcdef...`: written beside, synced, then renamed, then the folder synced. Thread-safe."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._known: set[str] = set()
        self._lock = threading.Lock()
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as wrong:
            raise ArtifactError(f"artifact store cannot be made ({wrong.strerror})", where=str(root),
                                hint="choose a writable --home") from None

    def path(self, name: str) -> Path:
        if not is_digest(name):
            raise ArtifactError("not a digest", value=name)
        body = name.removeprefix(DIGEST_PREFIX)
        return self.root / body[:2] / body

    def put(self, data: bytes, media_type: str = "application/octet-stream") -> ArtifactRef:
        name = digest(data)
        if not self.has(name):
            self._write(self.path(name), data)
        with self._lock:
            self._known.add(name)
        return ArtifactRef(name, len(data), media_type)

    def has(self, name: str) -> bool:
        return name in self._known or self.path(name).exists()

    def get(self, name: str) -> bytes:
        path = self.path(name)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise ArtifactError("artifact is missing", where=str(path), value=name) from None
        if digest(data) != name:
            raise ArtifactError("artifact is corrupt: its bytes do not match its digest", where=str(path), value=name)
        return data

    def _write(self, path: Path, data: bytes) -> None:
        beside = path.parent / f".{new_id()}.part"
        try:
            path.parent.mkdir(exist_ok=True)
            write_durably(beside, data)
            beside.rename(path)
            sync_folder(path.parent)
        except OSError as wrong:
            beside.unlink(missing_ok=True)
            raise ArtifactError(f"artifact cannot be written ({wrong.strerror})", where=str(path),
                                value=f"{len(data)} bytes") from None
