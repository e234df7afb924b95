"""Reads a workspace folder into a snapshot. Works on descriptors, never follows a link, never trusts a name.

Contents are stored as they are read, so memory is bounded by a block, not by the workspace. A file that is still the
lower layer's is not read: it has the inode and times that the layer was written with, and they are older than the
sandbox. Files of the upper layer are read each time: writes through a mapping leave no trace in a tmpfs's times.
Processes of the workspace may run meanwhile: what vanishes is not in the snapshot, what changes while it is read is
read again, and told if it goes on changing. Sockets, pipes and devices are left out and told.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from artifacts.store import ArtifactStore
from sandboxes.manifest import (
    ALL_INLINE_BYTES,
    ATTRIBUTE_PREFIX,
    BLOCK_BYTES,
    FILE,
    FOLDER,
    LIMITS,
    LINK,
    MAX_ATTRIBUTE_BYTES,
    MAX_BYTES,
    MAX_DEPTH,
    MAX_ENTRIES,
    MEDIA_TYPE,
    NAME,
    WHOLE_BYTES,
    Attribute,
    Entry,
    encode,
    entry_of_blocks,
    entry_of_file,
    manifest_of,
    settled,
    stored_apart,
)
from sandboxes.reading import MOVED, attribute_of, is_hole, open_found, passable, read_at, zeros
from sandboxes.restore import Identity, Known
from sandboxes.storing import Storing
from schemas.errors import SandboxError
from schemas.ids import digest

_ATTRIBUTE_PREFIX = ATTRIBUTE_PREFIX.decode()
_TRIES = 3
_CLOCK_REALTIME_COARSE = 5


class Captured(NamedTuple):
    """A workspace as read, its contents stored."""

    manifest: bytes
    digest: str
    skipped: list[bytes]
    """What could not be part of it."""
    changing: list[bytes]
    """Files that changed each time while they were read."""
    read_bytes: int
    """How much had to be read."""


class Base(NamedTuple):
    """The lower layer under a workspace: its files, and when the sandbox over it was made (`now_ns`)."""

    files: Mapping[bytes, Known]
    born_ns: int


NO_BASE = Base({}, 0)


def now_ns() -> int:
    """The clock that inodes are stamped with: what is stamped from now on is not before it."""
    return time.clock_gettime_ns(_CLOCK_REALTIME_COARSE)


def capture(root: int, artifacts: ArtifactStore, base: Base = NO_BASE) -> Captured:
    """The snapshot of the folder open at `root`, its contents stored.

    Raises SandboxError (kind `snapshot_limit`) for a workspace that is too deep, too many or too large, and (kind
    `snapshot`) for one that cannot be read.
    """
    walk = _Walk(artifacts, base)
    try:
        walk.folder(root, b"", 0)
    except OSError as wrong:
        raise SandboxError(f"workspace cannot be read ({wrong.strerror})", kind="snapshot",
                           value=wrong.filename) from None
    entries = settled(walk.entries + walk.shared(), walk.storing.put, artifacts.get)
    walk.storing.flush()
    manifest = encode(manifest_of(entries, walk.attributes))
    return Captured(manifest, digest(manifest), walk.skipped, walk.changing, walk.read_bytes)


def store(captured: Captured, artifacts: ArtifactStore) -> str:
    """The manifest comes last, its contents are there: a manifest in the store can always be restored."""
    return artifacts.put(captured.manifest, MEDIA_TYPE).digest


class _Walk:
    def __init__(self, artifacts: ArtifactStore, base: Base) -> None:
        self.artifacts, self.base, self.storing = artifacts, base, Storing(artifacts)
        self.entries: list[Entry] = []
        self.attributes: list[Attribute] = []
        self.several: dict[tuple[int, int], tuple[Entry, list[bytes], list[Attribute]]] = {}
        """Files with more than one name, by device and inode: read once."""
        self.skipped: list[bytes] = []
        self.changing: list[bytes] = []
        self.names = self.inline_bytes = self.size_bytes = self.attribute_bytes = self.read_bytes = 0

    def folder(self, descriptor: int, path: bytes, depth: int) -> None:
        # A workspace that its owner may not enter could not be handed out again.
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        self.entries.append(Entry(path, FOLDER, mode if path else mode | 0o700))
        self.attributes += self.attributes_of(descriptor, path)
        if depth > MAX_DEPTH:
            raise _over("workspace is too deep", path)
        with passable(descriptor, mode):
            self.names_in(descriptor, path, depth)

    def names_in(self, descriptor: int, path: bytes, depth: int) -> None:
        for name in os.listdir(descriptor):
            raw = os.fsencode(name)
            below = path + b"/" + raw if path else raw
            self.names += 1
            if self.names >= MAX_ENTRIES:
                raise _over("workspace has too many files", below)
            for _ in range(_TRIES):
                try:
                    self.name(descriptor, raw, below, depth)
                    break
                except OSError as wrong:
                    if wrong.errno not in MOVED:
                        raise

    def name(self, parent: int, name: bytes, path: bytes, depth: int) -> None:
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            target = os.readlink(name, dir_fd=parent)
            self.entries.append(Entry(path, LINK, 0o777, len(target), target))
        elif stat.S_ISREG(found.st_mode):
            if not self.is_known(path, found):
                descriptor = open_found(name, parent, found)
                try:
                    self.file(descriptor, path)
                finally:
                    os.close(descriptor)
        elif stat.S_ISDIR(found.st_mode):
            descriptor = open_found(name, parent, found)
            try:
                self.folder(descriptor, path, depth + 1)
            finally:
                os.close(descriptor)
        else:
            self.skipped.append(path)

    def is_known(self, path: bytes, found: os.stat_result) -> bool:
        """Whether nothing of the file has to be read."""
        if found.st_nlink > 1 and (several := self.several.get((found.st_dev, found.st_ino))) is not None:
            several[1].append(path)
            return True
        if (known := self.unchanged(path, found)) is None:
            return False
        self.count(path, found.st_size)
        self.add(known.entry_at(path), found, [self.counted(Attribute(path, *one)) for one in known.attributes])
        return True

    def add(self, entry: Entry, found: os.stat_result, attributes: list[Attribute]) -> None:
        if entry.kind == FILE and entry.content:
            before, self.inline_bytes = self.inline_bytes, self.inline_bytes + entry.size
            if self.inline_bytes > ALL_INLINE_BYTES:
                if before <= ALL_INLINE_BYTES:
                    self.entries = [stored_apart(one, self.storing.put) for one in self.entries]
                entry = stored_apart(entry, self.storing.put)
        if found.st_nlink > 1:
            self.several[found.st_dev, found.st_ino] = entry, [entry.path], attributes
        else:
            self.entries.append(entry)
            self.attributes += attributes

    def file(self, descriptor: int, path: bytes) -> None:
        found, counted = os.fstat(descriptor), 0
        for _ in range(_TRIES):
            self.count(path, found.st_size - counted)
            entry = self.read(descriptor, path, found)
            before, found, counted = found, os.fstat(descriptor), found.st_size
            if Identity.of(before) == Identity.of(found):
                break
        else:
            self.changing.append(path)
        self.add(entry, found, self.attributes_of(descriptor, path))

    def read(self, descriptor: int, path: bytes, found: os.stat_result) -> Entry:
        mode = stat.S_IMODE(found.st_mode)
        if found.st_size > WHOLE_BYTES:
            return entry_of_blocks(path, mode, self.blocks(descriptor, found.st_size), self.storing.put)
        data = read_at(descriptor, 0, found.st_size)
        self.read_bytes += len(data)
        return entry_of_file(path, mode, data, self.storing.put)

    def blocks(self, descriptor: int, size: int) -> Iterator[bytes]:
        for at in range(0, size, BLOCK_BYTES):
            length = min(BLOCK_BYTES, size - at)
            if is_hole(descriptor, at, length):
                yield zeros(length)
                continue
            data = read_at(descriptor, at, length)
            self.read_bytes += len(data)
            yield data
            if len(data) < length:
                return

    def unchanged(self, path: bytes, found: os.stat_result) -> Known | None:
        """What the lower layer knows of a file that is still its own, if all content is stored."""
        known = self.base.files.get(path)
        if known is None or Identity.of(found) != known.identity or found.st_ctime_ns >= self.base.born_ns:
            return None
        return known if all(map(self.artifacts.has, known.entry.parts)) else None

    def attributes_of(self, descriptor: int, path: bytes) -> list[Attribute]:
        try:
            names = [name for name in os.listxattr(descriptor) if name.startswith(_ATTRIBUTE_PREFIX)]
        except OSError as wrong:
            if wrong.errno == errno.ENOTSUP:
                return []
            if wrong.errno == errno.E2BIG:
                raise _over("file has too many attributes", path) from None
            raise
        found = []
        for name in names:
            if (value := attribute_of(descriptor, name)) is not None:
                found.append(self.counted(Attribute(path, os.fsencode(name), value)))
        return found

    def counted(self, one: Attribute) -> Attribute:
        self.attribute_bytes += len(one.name) + len(one.value)
        if self.attribute_bytes > MAX_ATTRIBUTE_BYTES:
            raise _over("workspace has too large attributes", one.path)
        return one

    def shared(self) -> list[Entry]:
        """Entries of files with several names: the content goes with the first of those that were found."""
        found = []
        for entry, paths, attributes in self.several.values():
            first, *others = sorted(paths)
            found.append(msgspec.structs.replace(entry, path=first))
            found += [Entry(path, NAME, entry.mode, entry.size, first) for path in others]
            self.attributes += [Attribute(first, one.name, one.value) for one in attributes]
        return found

    def count(self, path: bytes, size: int) -> None:
        self.size_bytes += size
        if self.size_bytes > MAX_BYTES:
            raise _over("workspace is too large for a snapshot", path)


def _over(what: str, path: bytes) -> SandboxError:
    return SandboxError(what, kind="snapshot_limit", where=os.fsdecode(path), hint=LIMITS)
