"""A root file system as a tree in memory, before any of it is on disk.

Names are put into the tree one by one, later ones over earlier ones, links resolved inside the tree: whatever an
archive calls its members, nothing leads out of it. Then the tree is written into an empty folder, folders first, so no
link is ever followed. Owners, times, device nodes and set-uid bits are not kept: inside a sandbox there is one user.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from schemas.errors import SandboxError

MAX_ENTRIES = 2_000_000
MAX_BYTES = 64 << 30
MAX_DEPTH = 100
_LINKS_FOLLOWED = 40
_BLOCK = 1 << 20
_MOUNTED = (b"dev", b"proc", b"sys")
"""What is in there is the kernel's."""
Owner = tuple[int, int] | None
Content = Callable[[], BinaryIO]
"""Opens a file's content, to be read to its end and closed."""


class File(msgspec.Struct, eq=False):
    """Under several names where it has hard links."""

    content: Content
    size: int
    runs: bool


class Link(msgspec.Struct, eq=False):
    target: bytes


class Folder(msgspec.Struct, eq=False):
    children: dict[bytes, File | Link | Folder] = {}


Node = File | Link | Folder


def damaged(what: str, where: str, value: object = None, hint: str = "") -> SandboxError:
    """The one error of an image that cannot be used."""
    return SandboxError(f"this image cannot be used: {what}", kind="image", where=where, value=value, hint=hint)


class Tree:
    """`origin` is what errors name. `left_out`: devices, pipes, sockets and what we may not read."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.root = Folder({})
        self.left_out: list[bytes] = []
        self._entries = self._bytes = 0

    def put(self, path: bytes, node: Node) -> None:
        """Folders above it are made if need be. A folder over a folder keeps what is in it."""
        self._count(path, node)
        parts = self.parts(path)
        if not parts or (parts[0] in _MOUNTED and parts[1:]):
            return
        above = self._folder(parts[:-1], path)
        before = above.children.get(parts[-1])
        if not (isinstance(node, Folder) and isinstance(before, Folder)):
            above.children[parts[-1]] = node

    def hide(self, path: bytes) -> None:
        """Take a name away, if it is there."""
        *above, name = self.parts(path)
        folder = self._look_up(above)
        if isinstance(folder, Folder):
            folder.children.pop(name, None)

    def empty(self, path: bytes) -> None:
        """Take away all that is in a folder."""
        folder = self._look_up(self.parts(path))
        if isinstance(folder, Folder):
            folder.children.clear()

    def find(self, path: bytes) -> Node | None:
        """What a name leads to, following links in its folders but not the last."""
        parts = self.parts(path)
        if not parts:
            return self.root
        folder = self._look_up(parts[:-1])
        return folder.children.get(parts[-1]) if isinstance(folder, Folder) else None

    def resolve(self, path: bytes) -> Node | None:
        """What a name leads to, every link followed."""
        return self._look_up(self.parts(path))

    def parts(self, path: bytes) -> list[bytes]:
        """The names of a path. One that climbs is refused; an absolute one starts at the root of the tree."""
        parts = [part for part in path.split(b"/") if part not in (b"", b".")]
        if b".." in parts or b"\0" in path:
            raise damaged("a name leads out of it", self.origin, path)
        if len(parts) > MAX_DEPTH:
            raise damaged(f"folders are more than {MAX_DEPTH} deep", self.origin, path[:80])
        return parts

    def _count(self, path: bytes, node: Node) -> None:
        self._entries += 1
        self._bytes += node.size if isinstance(node, File) else 0
        if self._entries > MAX_ENTRIES or self._bytes > MAX_BYTES:
            raise damaged(f"it has more than {MAX_ENTRIES} files or {MAX_BYTES >> 30} GiB", self.origin, path)

    def _folder(self, parts: list[bytes], path: bytes) -> Folder:
        """The folder of these names, made if need be; a file in its way is replaced, as a later layer may."""
        there = self._look_up(parts)
        if isinstance(there, Folder):
            return there
        for end in range(1, len(parts) + 1):
            if self._look_up(parts[:end]) is None or isinstance(self._look_up(parts[:end]), File):
                above = self._look_up(parts[:end - 1])
                if not isinstance(above, Folder) or isinstance(above.children.get(parts[end - 1]), Link):
                    raise damaged("a file lies below a link that leads nowhere", self.origin, path)
                above.children[parts[end - 1]] = Folder({})
        found = self._look_up(parts)
        assert isinstance(found, Folder)
        return found

    def _look_up(self, parts: list[bytes]) -> Node | None:
        """Every link followed, as if the tree's root were the root: `..` of the root is the root."""
        todo, trail, links = list(reversed(parts)), [self.root], 0
        while todo:
            part = todo.pop()
            if part in (b"", b"."):
                continue
            if part == b"..":
                trail = trail[:-1] or [self.root]
                continue
            node = trail[-1].children.get(part)
            if isinstance(node, Link):
                links += 1
                if links > _LINKS_FOLLOWED:
                    return None
                if node.target.startswith(b"/"):
                    trail = [self.root]
                todo += reversed(node.target.split(b"/"))
            elif isinstance(node, Folder):
                trail.append(node)
            else:
                return node if node is None or not any(todo) else None
        return trail[-1]


def write(tree: Tree, folder: Path, owner: Owner) -> str:
    """Write the tree into a folder that is empty and ours; the hex digest of all that it holds."""
    writing = _Writing(tree.origin, owner)
    writing.folder(tree.root, b"", os.fsencode(folder))
    return writing.digest.hexdigest()


class _Writing:
    def __init__(self, origin: str, owner: Owner) -> None:
        self.origin, self.owner = origin, owner
        self.digest = hashlib.sha256(b"headrace.image.v1\0")
        self.written: dict[int, tuple[bytes, bytes]] = {}
        """Path and content digest of files by identity: a hard link is the same file."""

    def folder(self, node: Folder, path: bytes, real: bytes) -> None:
        if path.count(b"/") >= MAX_DEPTH:  # Names may be short and go through links.
            raise damaged(f"folders are more than {MAX_DEPTH} deep", self.origin, path[:80])
        if path:
            os.mkdir(real)
        os.chmod(real, 0o755)
        self._own(real)
        self._say(path, "d", b"")
        for name, child in sorted(node.children.items()):
            below = path + b"/" + name if path else name
            place = os.path.join(real, name)
            if isinstance(child, Folder):
                self.folder(child, below, place)
            elif isinstance(child, Link):
                os.symlink(child.target, place)
                self._own(place)
                self._say(below, "l", child.target)
            else:
                self._say(below, "x" if child.runs else "f", self.file(child, below, place))

    def file(self, node: File, path: bytes, real: bytes) -> bytes:
        known = self.written.get(id(node))
        if known:
            os.link(known[0], real, follow_symlinks=False)
            return known[1]
        content = hashlib.sha256()
        descriptor = os.open(real, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb", 0) as made, node.content() as given:
            size = 0
            for block in _blocks(given):
                content.update(block)
                size += len(block)
                if block.count(0) == len(block):
                    made.seek(len(block), os.SEEK_CUR)  # stays a hole
                else:
                    _write_all(made, block)
            made.truncate(size)
            if size != node.size:
                raise damaged("a file is shorter or longer than was said", self.origin, path)
            os.fchmod(descriptor, 0o755 if node.runs else 0o644)
            if self.owner:
                os.fchown(descriptor, *self.owner)
        self.written[id(node)] = real, content.digest()
        return content.digest()

    def _own(self, real: bytes) -> None:
        if self.owner:
            os.chown(real, *self.owner, follow_symlinks=False)

    def _say(self, path: bytes, kind: str, what: bytes) -> None:
        self.digest.update(msgspec.msgpack.encode((path, kind, what)))


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    while block := file.read(_BLOCK):
        yield block


def _write_all(file: BinaryIO, block: bytes) -> None:
    view = memoryview(block)
    while view:
        view = view[file.write(view):]


def read_folder(folder: Path) -> Tree:
    """The tree of a root file system that is already unpacked. No link is followed."""
    tree = Tree(str(folder))
    todo = [(os.fsencode(folder), b"")]
    seen: dict[tuple[int, int], File] = {}
    while todo:
        real, path = todo.pop()
        try:
            with os.scandir(real) as listed:
                entries = list(listed)
        except PermissionError:
            tree.left_out.append(path)
            continue
        for entry in entries:
            _read_entry(tree, entry, path + b"/" + entry.name if path else entry.name, seen, todo)
    return tree


def _read_entry(tree: Tree, entry: os.DirEntry[bytes], path: bytes, seen: dict[tuple[int, int], File],
                todo: list[tuple[bytes, bytes]]) -> None:
    found = entry.stat(follow_symlinks=False)
    if entry.is_symlink():
        tree.put(path, Link(os.readlink(entry.path)))
    elif entry.is_dir(follow_symlinks=False):
        tree.put(path, Folder({}))
        if path not in _MOUNTED:
            todo.append((entry.path, path))
    elif entry.is_file(follow_symlinks=False) and os.access(entry.path, os.R_OK):
        place = entry.path
        made = File(lambda: _open(place), found.st_size, bool(found.st_mode & 0o111))
        node = seen.setdefault((found.st_dev, found.st_ino), made) if found.st_nlink > 1 else made
        tree.put(path, node)
    else:
        tree.left_out.append(path)


def _open(path: bytes) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb", 0)
