"""Reads a workspace folder into a snapshot. Works on descriptors, never follows a link, never trusts a name.

Contents are stored as they are read, so memory is bounded by a block, not by the workspace. A file that is still the
lower layer's is not read: it has the inode and times that the layer was written with, and they are older than the
sandbox. Files of the upper layer are read each time: writes through a mapping leave no trace in a tmpfs's times.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from artifacts.store import ArtifactStore
from sandboxes.snapshot import (
    BLOCK_BYTES,
    FOLDER,
    LINK,
    WHOLE_BYTES,
    Captured,
    Entry,
    Identity,
    encode,
    entry_of_blocks,
    entry_of_file,
    manifest_of,
)
from schemas.errors import SandboxError
from schemas.ids import digest

MAX_DEPTH = 200
MAX_ENTRIES = 200_000
MAX_BYTES = 2 << 30
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_BLOCK = 1 << 20
_CLOCK_REALTIME_COARSE = 5


class Base(NamedTuple):
    """The lower layer under a workspace: its files, and when the sandbox over it was made (`now_ns`)."""

    files: Mapping[bytes, tuple[Entry, Identity]]
    born_ns: int


NO_BASE = Base({}, 0)


def now_ns() -> int:
    """The clock that inodes are stamped with: what is stamped from now on is not before it."""
    return time.clock_gettime_ns(_CLOCK_REALTIME_COARSE)


def capture(root: int, artifacts: ArtifactStore, base: Base = NO_BASE) -> Captured:
    """The snapshot of the folder open at `root`, its contents stored. Nothing in it may be running.

    Raises SandboxError (kind `snapshot_limit`) for a workspace that is too deep, too many or too large.
    """
    walk = _Walk(artifacts, base)
    walk.folder(root, b"", 0)
    manifest = encode(manifest_of(walk.entries))
    return Captured(manifest, digest(manifest), walk.skipped, walk.read_bytes)


class _Walk:
    def __init__(self, artifacts: ArtifactStore, base: Base) -> None:
        self.artifacts, self.base = artifacts, base
        self.entries: list[Entry] = []
        self.skipped: list[bytes] = []
        self.size_bytes = self.read_bytes = 0

    def folder(self, descriptor: int, path: bytes, depth: int) -> None:
        # A workspace that its owner may not enter could not be handed out again.
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode) | (0 if path else 0o700)
        self.entries.append(Entry(path, FOLDER, mode))
        if depth > MAX_DEPTH or len(self.entries) > MAX_ENTRIES:
            raise _over("workspace is too deep or has too many files", path)
        for name in os.listdir(descriptor):
            raw = os.fsencode(name)
            self.name(descriptor, raw, path + b"/" + raw if path else raw, depth)

    def name(self, parent: int, name: bytes, path: bytes, depth: int) -> None:
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            target = os.readlink(name, dir_fd=parent)
            self.entries.append(Entry(path, LINK, 0o777, len(target), target))
        elif (unchanged := self.unchanged(path, found)) is not None:
            self.count(path, found.st_size)
            self.entries.append(unchanged)
        elif stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode):
            descriptor = _open(name, parent, stat.S_IMODE(found.st_mode))
            try:
                if stat.S_ISDIR(found.st_mode):
                    self.folder(descriptor, path, depth + 1)
                else:
                    self.file(descriptor, path, found)
            finally:
                os.close(descriptor)
        else:
            self.skipped.append(path)

    def file(self, descriptor: int, path: bytes, found: os.stat_result) -> None:
        self.count(path, found.st_size)
        mode = stat.S_IMODE(found.st_mode)
        if found.st_size > WHOLE_BYTES:
            entry = entry_of_blocks(path, mode, _blocks(descriptor), self.put)
        else:
            entry = entry_of_file(path, mode, read_all(descriptor, found.st_size), self.put)
        self.entries.append(entry)
        self.read_bytes += entry.size

    def unchanged(self, path: bytes, found: os.stat_result) -> Entry | None:
        """The lower layer's entry where the file is still the lower layer's and its content is stored."""
        if (known := self.base.files.get(path)) is None or not stat.S_ISREG(found.st_mode):
            return None
        entry, identity = known
        if Identity.of(found) != identity or found.st_ctime_ns >= self.base.born_ns:
            return None
        return entry if entry.digest is None or self.artifacts.has(entry.digest) else None

    def count(self, path: bytes, size: int) -> None:
        self.size_bytes += size
        if self.size_bytes > MAX_BYTES:
            raise _over("workspace is too large for a snapshot", path)

    def put(self, data: bytes) -> str:
        return self.artifacts.put(data).digest


def _blocks(descriptor: int) -> Iterator[bytes]:
    while True:
        parts, room = [], BLOCK_BYTES
        while room and (part := os.read(descriptor, min(room, _BLOCK))):
            parts.append(part)
            room -= len(part)
        if parts:
            yield b"".join(parts)
        if room:
            return


def _open(name: bytes, parent: int, mode: int) -> int:
    """Open for reading, also what its owner took the right to read from: the mode is put back at once."""
    try:
        return os.open(name, _OPEN, dir_fd=parent)
    except PermissionError:
        os.chmod(name, mode | 0o500, dir_fd=parent)
        try:
            descriptor = os.open(name, _OPEN, dir_fd=parent)
        finally:
            os.chmod(name, mode, dir_fd=parent)
        return descriptor


def read_all(descriptor: int, size: int) -> bytes:
    data = os.read(descriptor, min(size + 1, _BLOCK))
    if len(data) <= size and size < _BLOCK:
        return data
    parts = [data]
    while part := os.read(descriptor, _BLOCK):
        parts.append(part)
    return b"".join(parts)


def _over(what: str, path: bytes) -> SandboxError:
    return SandboxError(what, kind="snapshot_limit", where=os.fsdecode(path),
                        hint=f"limits: {MAX_ENTRIES} names, {MAX_BYTES >> 30} GiB, {MAX_DEPTH} folders deep")
