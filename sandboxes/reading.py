"""Reads from a folder that may be hostile or change meanwhile: never follows a link, never waits, never reads on."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import stat
from collections.abc import Iterator

MOVED = {errno.ENOENT, errno.ELOOP, errno.EINVAL, errno.ENOTDIR, errno.ESTALE}
"""A name was not there any more, or not the same kind of thing, when it was opened."""
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_BLOCK = 1 << 20


def open_found(name: bytes, parent: int, found: os.stat_result) -> int:
    """Open what was found, also what its owner took the right to read from: the mode is put back at once."""
    try:
        descriptor = os.open(name, _OPEN, dir_fd=parent)
    except PermissionError:
        descriptor = _open_shut(name, parent, found)
    if stat.S_IFMT(os.fstat(descriptor).st_mode) != stat.S_IFMT(found.st_mode):
        os.close(descriptor)
        raise OSError(errno.ESTALE, "is something else now", name)
    return descriptor


def _open_shut(name: bytes, parent: int, found: os.stat_result) -> int:
    """By the inode, never by the name: that may be a link to a file of the host by now, whose mode would change."""
    held = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        there = os.fstat(held)
        if not os.path.samestat(there, found) or stat.S_IFMT(there.st_mode) != stat.S_IFMT(found.st_mode):
            raise OSError(errno.ESTALE, "is something else now", name)
        place, mode = f"/proc/self/fd/{held}", stat.S_IMODE(found.st_mode)
        os.chmod(place, mode | 0o500)
        try:
            return os.open(place, _OPEN & ~os.O_NOFOLLOW)
        finally:
            os.chmod(place, mode)
    finally:
        os.close(held)


@contextlib.contextmanager
def passable(folder: int, mode: int) -> Iterator[None]:
    """Names in a folder can be looked up, though its owner took that right. Root always can."""
    shut = mode & 0o500 != 0o500 and os.geteuid() != 0
    if shut:
        os.fchmod(folder, mode | 0o500)
    try:
        yield
    finally:
        if shut:
            os.fchmod(folder, mode)


def attribute_of(descriptor: int, name: str) -> bytes | None:
    """Its value, also of a file that its owner took the right to read from; None if it is gone."""
    try:
        return os.getxattr(descriptor, name)
    except PermissionError:
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        os.fchmod(descriptor, mode | 0o400)
        try:
            return os.getxattr(descriptor, name)
        finally:
            os.fchmod(descriptor, mode)
    except OSError as wrong:
        if wrong.errno == errno.ENODATA:
            return None
        raise


def is_hole(descriptor: int, at: int, length: int) -> bool:
    try:
        return os.lseek(descriptor, at, os.SEEK_DATA) >= at + length
    except OSError as wrong:
        if wrong.errno == errno.ENXIO:  # no data from there on
            return True
        raise


@functools.lru_cache(1)
def zeros(length: int) -> bytes:
    return bytes(length)


def read_at(descriptor: int, at: int, size: int) -> bytes:
    """At most `size` bytes, though the file may grow meanwhile."""
    data = os.pread(descriptor, min(size, _BLOCK), at)
    if len(data) == size or not data:
        return data
    parts, end = [data], at + size
    at += len(data)
    while at < end and (part := os.pread(descriptor, min(end - at, _BLOCK), at)):
        parts.append(part)
        at += len(part)
    return b"".join(parts)
