"""Reads and writes single files of a workspace by relative path, through descriptors.

A link is followed only as far as it stays in the workspace (relative, or absolute below /workspace); what leads out is
a PermissionError. Resolution is done here, name by name, so that no kernel shortcut can be tricked.
"""

from __future__ import annotations

import errno
import os
import stat

from sandboxes.reading import read_at

INSIDE = "/workspace"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LINKS_FOLLOWED = 40


def read_file(root: int, path: str, limit_bytes: int) -> bytes:
    """Content of a regular file. FileNotFoundError, IsADirectoryError, PermissionError or OSError (too large)."""
    with _Place(root, path) as place:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(place.name, flags, dir_fd=place.folder)
        try:
            found = os.fstat(descriptor)
            if stat.S_ISDIR(found.st_mode):
                raise IsADirectoryError(errno.EISDIR, "is a folder", path)
            if not stat.S_ISREG(found.st_mode):
                raise PermissionError(errno.EACCES, "not a regular file", path)
            if found.st_size > limit_bytes:
                raise OSError(errno.EFBIG, f"file of {found.st_size} bytes is over the limit of {limit_bytes}", path)
            return read_at(descriptor, 0, found.st_size)
        finally:
            os.close(descriptor)


def write_file(root: int, path: str, data: bytes, owner: tuple[int, int] | None) -> None:
    """Replace or make a file (mode 0644) and the folders that it needs (0755), owned by the sandbox's user."""
    with _Place(root, path, owner, make=True) as place:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        made = not _exists(place)
        descriptor = os.open(place.name, flags, 0o644, dir_fd=place.folder)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise PermissionError(errno.EACCES, "not a regular file", path)
            if made:
                os.fchmod(descriptor, 0o644)
                if owner:
                    os.fchown(descriptor, *owner)
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view):]
        finally:
            os.close(descriptor)


def _exists(place: _Place) -> bool:
    try:
        os.stat(place.name, dir_fd=place.folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


class _Place:
    """Where a path really is: an open folder and a name in it that is not a link. Closes what it opened."""

    def __init__(self, root: int, path: str, owner: tuple[int, int] | None = None, make: bool = False) -> None:
        self.path, self.owner, self.make = path, owner, make
        self.trail = [os.dup(root)]
        self.links = 0
        try:
            self.name = self._walk(os.fsencode(path))
        except BaseException:
            self.__exit__()
            raise

    @property
    def folder(self) -> int:
        return self.trail[-1]

    def __enter__(self) -> _Place:
        return self

    def __exit__(self, *_: object) -> None:
        while self.trail:
            os.close(self.trail.pop())

    def _walk(self, path: bytes) -> bytes:
        todo = self._parts(path)
        while todo:
            name = todo.pop()
            if name == b"..":
                self._up()
            elif (target := self._link(name)) is not None:
                todo += self._parts(target)
            elif not todo:
                return name
            else:
                self.trail.append(self._open_folder(name))
        return b"."

    def _parts(self, path: bytes) -> list[bytes]:
        """The names still to walk, next one last; an absolute path starts again at the workspace."""
        if path.startswith(b"/"):
            inside = os.fsencode(INSIDE)
            if path != inside and not path.startswith(inside + b"/"):
                raise self._out()
            while len(self.trail) > 1:
                os.close(self.trail.pop())
            path = path[len(inside):]
        return [part for part in reversed(path.split(b"/")) if part not in (b"", b".")]

    def _up(self) -> None:
        if len(self.trail) == 1:
            raise self._out()
        os.close(self.trail.pop())

    def _link(self, name: bytes) -> bytes | None:
        try:
            target = os.readlink(name, dir_fd=self.folder)
        except FileNotFoundError:
            return None
        except OSError as wrong:
            if wrong.errno == errno.EINVAL:
                return None
            raise
        self.links += 1
        if self.links > _LINKS_FOLLOWED:
            raise OSError(errno.ELOOP, "too many links", self.path)
        return target

    def _open_folder(self, name: bytes) -> int:
        try:
            return os.open(name, _FOLDER, dir_fd=self.folder)
        except FileNotFoundError:
            if not self.make:
                raise FileNotFoundError(errno.ENOENT, "no such file", self.path) from None
        os.mkdir(name, 0o755, dir_fd=self.folder)
        descriptor = os.open(name, _FOLDER, dir_fd=self.folder)
        os.fchmod(descriptor, 0o755)
        if self.owner:
            os.fchown(descriptor, *self.owner)
        return descriptor

    def _out(self) -> PermissionError:
        return PermissionError(errno.EACCES, "leads out of the workspace", self.path)
