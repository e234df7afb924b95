"""Images: root file systems that sandboxes see in place of the host's programs.

An image is unpacked once into the home and named by a digest of what it holds, so the same content from a folder or
any form of archive is the same image. Where it came from is remembered with the source's size and times, so it is not
read again; a folder is looked through once in the life of a backend.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import logging
import os
import re
import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from sandboxes import roottree
from sandboxes.cache import Cache, Held
from sandboxes.roottree import Owner, damaged
from schemas.ids import DIGEST_PREFIX

if TYPE_CHECKING:
    from sandboxes import archive

log = logging.getLogger(__name__)
_DIGEST = re.compile(re.escape(DIGEST_PREFIX) + r"[0-9a-f]{64}\Z")
_ABOUT, _ROOT, _AGENT, _SOURCES = "image.json", "root", "agent", "sources"
_SHELL = b"bin/sh"
_ETC = {
    b"etc/passwd": (b"root:x:0:0:root:/root:/bin/sh\n", b"sandbox:x:1000:1000:sandbox:/workspace:/bin/sh\n"),
    b"etc/group": (b"root:x:0:\n", b"sandbox:x:1000:\n"),
}
"""What stands there where the image has none, and the line that is added."""


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an image beside its files."""

    source: str
    environment: dict[str, str] = {}
    left_out: int = 0


class Image(NamedTuple):
    """`agent` holds the image's own `sh`, which may be executed but not read."""

    digest: str
    root: Path
    agent: Path
    environment: dict[str, str]


class Images:
    """The images of a home as one backend uses them: what it took stays until `close`. Thread-safe."""

    def __init__(self, folder: Path, owner: Owner) -> None:
        self.cache = Cache(folder)
        self._owner = owner
        self._lock = threading.Lock()
        self._held: dict[str, Held] = {}
        self._digests: dict[str, str] = {}
        """Of folders that were looked through."""

    def take(self, reference: str) -> Image:
        """The image of a folder, an archive or a digest. Raises SandboxError (kind `image`)."""
        try:
            name = self._name_of(reference)
        except OSError as wrong:
            raise damaged(wrong.strerror or str(wrong), reference) from None
        held = self._hold(name)
        if held is None:
            raise damaged("it is not in this home", reference, hint="name its folder or archive once")
        about = msgspec.json.decode((held.path / _ABOUT).read_bytes(), type=About)
        return Image(DIGEST_PREFIX + name, held.path / _ROOT, held.path / _AGENT, about.environment)

    def close(self) -> None:
        with self._lock:
            while self._held:
                self._held.popitem()[1].release()

    def _hold(self, name: str) -> Held | None:
        with self._lock:
            if name not in self._held and (found := self.cache.find(name)):
                self._held[name] = found
            return self._held.get(name)

    def _name_of(self, reference: str) -> str:
        if _DIGEST.match(reference):
            return reference.removeprefix(DIGEST_PREFIX)
        path = Path(reference)
        if not path.exists():
            raise damaged("there is no such folder or archive", reference)
        path = path.resolve()
        if path.is_dir() and (known := self._digests.get(str(path))):
            return known
        mark = _mark_of(path)
        name = self._known(mark)
        if name is None:
            with self.cache.alone(mark):
                name = self._known(mark) or self._unpack(path, mark)
        self._digests[str(path)] = name
        return name

    def _known(self, mark: str) -> str | None:
        try:
            name = (self.cache.root / _SOURCES / mark).read_text()
        except FileNotFoundError:
            return None
        return name if self._hold(name) else None

    def _unpack(self, path: Path, mark: str) -> str:
        with contextlib.ExitStack() as closing, self.cache.half() as half:
            found = _read(path, half, closing)
            tree = found.tree
            shell = tree.resolve(_SHELL)
            if not isinstance(shell, roottree.File):
                raise damaged("it has no /bin/sh", str(path))
            _add_user(tree)
            (half / _AGENT).mkdir()
            _copy_shell(shell, half / _AGENT / "sh")
            (half / _ROOT).mkdir()
            content = roottree.write(tree, half / _ROOT, self._owner)
            about = About(source=str(path), environment=found.environment, left_out=len(tree.left_out))
            name = hashlib.sha256(msgspec.json.encode([content, sorted(about.environment.items())])).hexdigest()
            (half / _ABOUT).write_bytes(msgspec.json.encode(about))
            if tree.left_out:
                log.info("image %s: %d devices, sockets or unreadable files are left out", path, len(tree.left_out))
            self.cache.keep(half, name)
        self._remember(mark, name)
        return name

    def _remember(self, mark: str, name: str) -> None:
        folder = self.cache.root / _SOURCES
        folder.mkdir(exist_ok=True)
        fresh = folder / f".{mark}"
        fresh.write_text(name)
        fresh.rename(folder / mark)


def _read(path: Path, scratch: Path, closing: contextlib.ExitStack) -> archive.Read:
    from sandboxes import archive  # opens slowly, and most homes have no image

    if path.is_dir():
        return archive.read_layout(path, scratch, closing) or archive.Read(roottree.read_folder(path), {})
    return archive.read_archive(path, scratch, closing)


def _add_user(tree: roottree.Tree) -> None:
    """The sandbox's user gets a name, unless the image has given its number one."""
    for path, (given, line) in _ETC.items():
        node = tree.resolve(path)
        if isinstance(node, roottree.File):
            with node.content() as file:
                given = file.read(1 << 20)
        if any(entry.split(b":")[2:3] == [b"1000"] for entry in given.splitlines()):
            continue
        text = given.rstrip(b"\n") + b"\n" + line
        tree.hide(path)
        tree.put(path, roottree.File(functools.partial(io.BytesIO, text), len(text), False))


def _copy_shell(shell: roottree.File, path: Path) -> None:
    with shell.content() as given, path.open("xb") as made:
        shutil.copyfileobj(given, made)
        os.fchmod(made.fileno(), 0o111)


def _mark_of(path: Path) -> str:
    """Names a source as it is now: of a folder, all names and what the kernel changes when content changes."""
    said = hashlib.sha256(os.fsencode(path))
    todo = [os.fsencode(path)]
    while todo:
        name = todo.pop()
        found = os.lstat(name)
        said.update(b"%s\0%d %d %d %d %d\n" % (name, found.st_mode, found.st_ino, found.st_size, found.st_mtime_ns,
                                               found.st_ctime_ns))
        if os.path.isdir(name) and not os.path.islink(name):
            with contextlib.suppress(PermissionError):
                todo += [os.path.join(name, child) for child in sorted(os.listdir(name))]
    return said.hexdigest()
