"""Folders that are made once and then only read, shared by all owners of a home: unpacked images, set-up layers.

A folder is made beside its place and renamed, so what has a name is whole, whenever its maker was killed. Locks are
file locks, which end with their holder: one keeps two owners from making the same, one on the folder keeps a reaper
from what is in use.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from sandboxes.reaper import remove_tree
from schemas.ids import new_id

UNUSED_S = 30 * 24 * 3600.0
"""What nobody has used for this long is removed; it can be made again."""
_YOUNG_S = 60.0
"""Something half made may be on its way to its lock for this long."""
_HALF, _LOCK, _GONE = ".half-", ".lock-", ".gone-"


class Held:
    """A folder that cannot be removed until `release`. May be used as a context manager."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path, self._descriptor = path, descriptor

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Held:
        return self

    def __exit__(self, kind: type[BaseException] | None, wrong: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.release()


class Cache:
    def __init__(self, root: Path) -> None:
        self.root = root

    @contextlib.contextmanager
    def alone(self, name: str) -> Iterator[None]:
        """Waits until nobody else, in this process or another, is in here for this name."""
        self.root.mkdir(parents=True, exist_ok=True)
        path = self.root / f"{_LOCK}{name}"
        while True:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if _is_still(path, lock):
                break
            os.close(lock)  # whoever was in here before has taken the file away
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                path.unlink()
            os.close(lock)

    def find(self, name: str) -> Held | None:
        """The folder of this name, if it was made."""
        path = self.root / name
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return None
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        if not _is_still(path, descriptor):
            os.close(descriptor)
            return None
        with contextlib.suppress(OSError):  # only its owner may
            os.utime(descriptor)
        return Held(path, descriptor)

    @contextlib.contextmanager
    def half(self) -> Iterator[Path]:
        """A folder to make something in; what is not kept by `keep` is removed, by a reaper if need be."""
        path = self.root / f"{_HALF}{new_id()}"
        path.mkdir(parents=True)
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield path
        finally:
            remove_tree(path)
            os.close(descriptor)

    def keep(self, half: Path, name: str) -> None:
        """Give what was made its name, for good. If another was quicker, theirs is as good."""
        _on_disk(half)
        try:
            half.rename(self.root / name)
        except OSError:
            if not (self.root / name).is_dir():
                raise

    def drop(self, name: str) -> None:
        """Take its name away, so that it can be made anew; who uses it goes on."""
        with contextlib.suppress(FileNotFoundError):
            (self.root / name).rename(self.root / f"{_GONE}{new_id()}")

    def reap(self, unused_s: float = UNUSED_S) -> int:
        """Remove what was left half made, and what nobody uses nor has used for a while; how many folders."""
        count = 0
        for path in sorted(self.root.iterdir()) if self.root.is_dir() else ():
            with contextlib.suppress(OSError):  # somebody uses it, makes it, or was quicker
                count += self._reap(path, unused_s)
        return count

    def _reap(self, path: Path, unused_s: float) -> bool:
        kind = path.name.split("-")[0] + "-"
        patience_s = {_GONE: 0.0, _LOCK: 0.0, _HALF: _YOUNG_S}.get(kind, unused_s)
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is_still(path, descriptor) or time.time() - os.fstat(descriptor).st_mtime < patience_s:
                return False
            if kind == _LOCK:
                path.unlink()
                return False
            remove_tree(path if kind in (_HALF, _GONE) else path.rename(self.root / f"{_GONE}{new_id()}"))
        finally:
            os.close(descriptor)
        return True


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return False
    return os.path.samestat(found, os.fstat(descriptor))


def _on_disk(folder: Path) -> None:
    """All of it at once: a call for each of ten thousand files would take minutes."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        ctypes.CDLL(None).syncfs(descriptor)
    finally:
        os.close(descriptor)
