"""Writes a snapshot into a folder. Works on descriptors: no path is too long, and no link is ever followed.

Modes are exact, set-uid bits too; further names are hard links; runs of zeros stay holes. An attribute that the file
system does not keep is told, and nothing else is lost for it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from sandboxes.fetching import Fetching
from sandboxes.manifest import FOLDER, LINK, NAME, Entry, Get, Manifest
from sandboxes.snapshot import content_of

Owner = tuple[int, int] | None
_Attributes = list[tuple[bytes, bytes]]
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PAGE = 4096
_ZEROS = bytes(_PAGE)


class Identity(NamedTuple):
    """What the kernel changes whenever a file's bytes or its inode are others."""

    inode: int
    size: int
    modified_ns: int
    changed_ns: int

    @classmethod
    def of(cls, found: os.stat_result) -> Identity:
        return cls(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


class Known(NamedTuple):
    """A file as it was written: its entry (that of its first name), its inode, the attributes that it got."""

    entry: Entry
    identity: Identity
    attributes: _Attributes

    def entry_at(self, path: bytes) -> Entry:
        return self.entry if self.entry.path == path else msgspec.structs.replace(self.entry, path=path)


class Restored(NamedTuple):
    files: dict[bytes, Known]
    """By each of their names."""
    lost: list[bytes]
    """Paths that have not got all of their attributes: the file system did not take them."""


def restore(manifest: Manifest, get: Get, folder: Path, owner: Owner = None) -> Restored:
    """Write a checked manifest into `folder`, which is fresh and ours, or made. `owner` gets everything."""
    folder.mkdir(0o700, exist_ok=True)
    with _Tree(folder) as tree, Fetching(get, manifest.entries) as fetching:
        return _Writer(manifest, fetching.get, tree, owner).write()


class _Writer:
    def __init__(self, manifest: Manifest, get: Get, tree: _Tree, owner: Owner) -> None:
        self.manifest, self.get, self.tree, self.owner = manifest, get, tree, owner
        self.written: dict[bytes, Known] = {}
        self.attributes: dict[bytes, _Attributes] = {}
        self.lost: list[bytes] = []
        for one in manifest.attributes:
            self.attributes.setdefault(one.path, []).append((one.name, one.value))

    def write(self) -> Restored:
        folders, names = [], []
        for entry in self.manifest.entries:
            if entry.kind == FOLDER:
                folders.append(entry)
                if entry.path:
                    parent, name = self.tree.place(entry.path)
                    os.mkdir(name, 0o700, dir_fd=parent)
            elif entry.kind == LINK:
                self.link(entry)
            elif entry.kind == NAME:
                names.append(entry)
            else:
                self.written[entry.path] = self.file(entry)
        self.names(names)
        for entry in reversed(folders):  # what a folder's mode forbids is done
            self.finish_folder(entry)
        return Restored(self.written, self.lost)

    def file(self, entry: Entry) -> Known:
        parent, name = self.tree.place(entry.path)
        attributes = self.attributes.get(entry.path, [])
        # The mode that is wanted, so that mostly nothing more has to be said; a change of owner clears set-uid bits.
        descriptor = os.open(name, _NEW, entry.mode | (0o200 if attributes else 0), dir_fd=parent)
        try:
            _fill(descriptor, entry, self.get)
            attributes = self.set_attributes(entry.path, descriptor, attributes)
            if self.owner:
                os.fchown(descriptor, *self.owner)
            found = os.fstat(descriptor)
            if stat.S_IMODE(found.st_mode) != entry.mode:
                os.fchmod(descriptor, entry.mode)
                found = os.fstat(descriptor)
            return Known(entry, Identity.of(found), attributes)
        finally:
            os.close(descriptor)

    def link(self, entry: Entry) -> None:
        parent, name = self.tree.place(entry.path)
        os.symlink(entry.content or b"", name, dir_fd=parent)
        if self.owner:
            os.chown(name, *self.owner, dir_fd=parent, follow_symlinks=False)

    def names(self, entries: list[Entry]) -> None:
        """Hard links, and what they change of the inode: how many names it has, when it was changed."""
        for entry in entries:
            source, old = self.tree.place(entry.content or b"")
            source = os.dup(source)  # the way to the next place may close it
            try:
                target, new = self.tree.place(entry.path)
                os.link(old, new, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)
            finally:
                os.close(source)
        for first in {entry.content or b"" for entry in entries}:
            parent, name = self.tree.place(first)
            now = Identity.of(os.stat(name, dir_fd=parent, follow_symlinks=False))
            self.written[first] = self.written[first]._replace(identity=now)
        for entry in entries:
            self.written[entry.path] = self.written[entry.content or b""]

    def finish_folder(self, entry: Entry) -> None:
        descriptor = self.tree.enter(entry.path)
        self.set_attributes(entry.path, descriptor, self.attributes.get(entry.path, []))
        if self.owner:
            os.fchown(descriptor, *self.owner)
        os.fchmod(descriptor, entry.mode)

    def set_attributes(self, path: bytes, descriptor: int, wanted: _Attributes) -> _Attributes:
        """Those that the file system takes: some take none, each has its own bounds of size and number."""
        taken = []
        for name, value in wanted:
            try:
                os.setxattr(descriptor, name, value)
            except OSError:
                continue
            taken.append((name, value))
        if len(taken) < len(wanted):
            self.lost.append(path)
        return taken


class _Tree:
    """The folder of a path, open: kept until a path elsewhere is asked for. Paths in order open each folder once."""

    def __init__(self, folder: Path) -> None:
        self._open = [(b"", os.open(folder, _FOLDER))]

    def place(self, path: bytes) -> tuple[int, bytes]:
        folder, _, name = path.rpartition(b"/")
        return self.enter(folder), name

    def enter(self, folder: bytes) -> int:
        at, descriptor = self._open[-1]
        if at == folder:
            return descriptor
        while at and folder != at and not folder.startswith(at + b"/"):
            os.close(self._open.pop()[1])
            at, descriptor = self._open[-1]
        for part in folder[len(at) + (at != b""):].split(b"/") if folder != at else ():
            descriptor = os.open(part, _FOLDER, dir_fd=descriptor)
            at = at + b"/" + part if at else part
            self._open.append((at, descriptor))
        return descriptor

    def __enter__(self) -> _Tree:
        return self

    def __exit__(self, *_: object) -> None:
        while self._open:
            os.close(self._open.pop()[1])


def _fill(descriptor: int, entry: Entry, get: Get) -> None:
    end = at = 0
    for part in content_of(entry, get):
        for start, stop in data_of(part):
            view = memoryview(part)[start:stop]
            at = end + start
            while view:
                count = os.pwrite(descriptor, view, at)
                view, at = view[count:], at + count
        end += len(part)
    if at < end:
        os.ftruncate(descriptor, end)


def data_of(part: bytes) -> Iterator[tuple[int, int]]:
    """Where a part is not only zeros, by pages; what is smaller than a page is data."""
    size = len(part)
    if size < _PAGE or _ZEROS not in part:
        yield 0, size
        return
    start = None
    for at in range(0, size, _PAGE):
        hole = part.startswith(_ZEROS, at)
        if start is None and not hole:
            start = at
        elif start is not None and hole:
            yield start, at
            start = None
    if start is not None:
        yield start, size


