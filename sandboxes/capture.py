"""Reads a workspace folder into a snapshot. Works on descriptors, never follows a link, never trusts a name."""

from __future__ import annotations

import os
import stat

from sandboxes.snapshot import FOLDER, LINK, Captured, Entry, encode, entry_of_file, manifest_of
from schemas.errors import SandboxError
from schemas.ids import digest

MAX_DEPTH = 200
MAX_ENTRIES = 200_000
MAX_BYTES = 2 << 30
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_BLOCK = 1 << 20


def capture(root: int) -> Captured:
    """The snapshot of the folder open at `root`. Nothing in it may be running.

    Raises SandboxError (kind `snapshot_limit`) for a workspace that is too deep, too many or too large.
    """
    walk = _Walk()
    walk.folder(root, b"", 0)
    manifest = encode(manifest_of(walk.entries))
    return Captured(manifest, digest(manifest), walk.large, walk.skipped)


class _Walk:
    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.large: dict[str, bytes] = {}
        self.skipped: list[bytes] = []
        self.size_bytes = 0

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
        self.size_bytes += found.st_size
        if self.size_bytes > MAX_BYTES:
            raise _over("workspace is too large for a snapshot", path)
        data = read_all(descriptor, found.st_size)
        self.entries.append(entry_of_file(path, stat.S_IMODE(found.st_mode), data, self.large))


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
