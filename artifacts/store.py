"""The ArtifactStore contract and its one implementation, over a Folder: a directory or S3-compatible storage.

An artifact is named by the SHA-256 of its bytes and never changes. `put` returns when the bytes are durable, so an
event may name them. Writing the same bytes twice costs nothing. `get` checks the digest: corrupt bytes never leave.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Protocol

from artifacts.folder import Folder
from artifacts.local_folder import LocalFolder
from schemas.errors import ArtifactError, ArtifactStorageError
from schemas.events import ArtifactRef
from schemas.ids import DIGEST_PREFIX, digest, is_digest

_KNOWN = 50_000
"""Digests that are remembered as stored: about 8 MB."""


class ArtifactStore(Protocol):
    def put(self, data: bytes, media_type: str = "application/octet-stream") -> ArtifactRef: ...

    def get(self, digest: str) -> bytes:
        """Raises ArtifactError if the artifact is missing or its bytes do not match."""
        ...

    def has(self, digest: str) -> bool: ...


class FolderStore:
    """`ab/abcdef...` in the folder. Thread-safe. The digests remembered are the newest: memory is bounded."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self._known: dict[str, None] = {}
        self._lock = threading.Lock()

    def put(self, data: bytes, media_type: str = "application/octet-stream") -> ArtifactRef:
        name = digest(data)
        if name not in self._known:
            if self._size(name) != len(data):  # Another size: cut short by a fault, and healed here.
                self._write(name, data)
            self._remember(name)
        return ArtifactRef(name, len(data), media_type)

    def has(self, name: str) -> bool:
        return name in self._known or self._size(name) is not None

    def get(self, name: str) -> bytes:
        file = file_of(name)
        try:
            data = self.folder.read(file)
        except FileNotFoundError:
            raise ArtifactError("artifact is missing", where=self.folder.url, value=name) from None
        except OSError as wrong:
            raise ArtifactStorageError(f"artifact cannot be read ({wrong.strerror})", where=self.folder.url,
                                value=name) from None
        if digest(data) != name:
            raise ArtifactError("artifact is corrupt: its bytes do not match its digest",
                                where=f"{self.folder.url}/{file}", value=name)
        return data

    def _size(self, name: str) -> int | None:
        try:
            return self.folder.size(file_of(name))
        except OSError as wrong:
            raise ArtifactStorageError(f"artifact store cannot be asked ({wrong.strerror})", where=self.folder.url,
                                value=name) from None

    def _write(self, name: str, data: bytes) -> None:
        try:
            self.folder.write(file_of(name), data)
        except OSError as wrong:
            raise ArtifactStorageError(f"artifact cannot be written ({wrong.strerror})", where=self.folder.url,
                                value=f"{len(data)} bytes", hint="is there free space?") from None

    def _remember(self, name: str) -> None:
        with self._lock:
            self._known[name] = None
            if len(self._known) > _KNOWN:
                del self._known[next(iter(self._known))]


class DirectoryStore(FolderStore):
    """In a local directory, which is made at once: a home that cannot be written is told at the start."""

    def __init__(self, root: Path) -> None:
        super().__init__(LocalFolder(root))
        self.root = root
        try:
            self.folder.make()
        except OSError as wrong:
            raise ArtifactError(f"artifact store cannot be made ({wrong.strerror})", where=str(root),
                                hint="choose a writable --home") from None

    def path(self, name: str) -> Path:
        return self.root / file_of(name)


def file_of(name: str) -> str:
    if not is_digest(name):
        raise ArtifactError("not a digest", value=name)
    body = name.removeprefix(DIGEST_PREFIX)
    return f"{body[:2]}/{body}"
