"""Workspace snapshots: a canonical manifest whose digest is the workspace's digest.

The manifest is itself an artifact: sorted entries of path, kind, mode and content (inline up to 4 KiB, else the digest
of an artifact) or link target. A file over 64 MiB is a list of 16 MiB blocks: none is ever in memory as a whole.
No times, owners or inodes, so equal workspaces have equal digests on any machine.
Names are bytes: newlines and non-UTF-8 are fine. Sockets, pipes and devices are left out and reported.
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from artifacts.store import ArtifactStore
from schemas.errors import SandboxError
from schemas.ids import DIGEST_PREFIX, digest

FORMAT = "headrace.snapshot.v1"
MEDIA_TYPE = "application/vnd.headrace.snapshot+msgpack"
INLINE_BYTES = 4096
WHOLE_BYTES = 64 << 20
BLOCK_BYTES = 16 << 20
FOLDER, FILE, LINK, BLOCKS = KINDS = "d", "f", "l", "b"
_DIGEST_BYTES = 32
_LINKS_FOLLOWED = 40
Owner = tuple[int, int] | None
Put = Callable[[bytes], str]
"""Stores bytes; their digest."""


class Identity(NamedTuple):
    """What the kernel changes whenever a file's bytes or its inode are others."""

    inode: int
    size: int
    modified_ns: int
    changed_ns: int

    @classmethod
    def of(cls, found: os.stat_result) -> Identity:
        return cls(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One name in the workspace; the root folder itself is the entry with the empty path."""

    path: bytes
    kind: str
    mode: int
    size: int = 0
    content: bytes | None = None
    """File content when small, the target of a link, or the bare digests of a file's blocks one after another."""
    digest: str | None = None
    """The artifact that holds a larger file's content."""


class Manifest(msgspec.Struct, frozen=True, array_like=True):
    format: str
    entries: list[Entry]


class Captured(NamedTuple):
    """A workspace as read, its contents stored: what could not be part of it, and how much had to be read for it."""

    manifest: bytes
    digest: str
    skipped: list[bytes]
    read_bytes: int


class FileInfo(NamedTuple):
    path: str
    kind: str
    mode: int
    size: int


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Manifest)


def manifest_of(entries: Iterable[Entry]) -> Manifest:
    return Manifest(FORMAT, sorted(entries, key=lambda entry: entry.path))


def encode(manifest: Manifest) -> bytes:
    """The one serialisation of a manifest."""
    return _ENCODER.encode(manifest)


def load(name: str, artifacts: ArtifactStore) -> Manifest:
    """The manifest of a digest, checked: every path is relative, clean and below folders of the same manifest."""
    try:
        manifest = _DECODER.decode(artifacts.get(name))
    except msgspec.MsgspecError as wrong:
        raise SandboxError(f"snapshot manifest cannot be read ({wrong})", kind="snapshot", value=name) from None
    _check(manifest, name)
    return manifest


def _check(manifest: Manifest, name: str) -> None:
    if manifest.format != FORMAT or not manifest.entries or manifest.entries[0].path:
        raise SandboxError("not a snapshot manifest", kind="snapshot", where=name, value=manifest.format)
    folders: set[bytes] = set()
    before = None
    for entry in manifest.entries:
        inside = not entry.path or (os.path.dirname(entry.path) in folders and _is_clean(entry.path))
        if not inside or (before is not None and entry.path <= before) or entry.kind not in KINDS:
            raise SandboxError("snapshot manifest names a path outside of its folders, or out of order",
                               kind="snapshot", where=name, value=entry.path)
        if entry.kind == BLOCKS and len(entry.content or b"") != _DIGEST_BYTES * -(-entry.size // BLOCK_BYTES):
            raise SandboxError("snapshot manifest names another number of blocks than its file has",
                               kind="snapshot", where=name, value=entry.path)
        before = entry.path
        if entry.kind == FOLDER:
            folders.add(entry.path)


def _is_clean(path: bytes) -> bool:
    return b"\0" not in path and not any(part in (b"", b".", b"..") for part in path.split(b"/"))


def entry_of_file(path: bytes, mode: int, data: bytes, put: Put) -> Entry:
    """A file's entry; content that does not go inline is put."""
    if len(data) <= INLINE_BYTES:
        return Entry(path, FILE, mode, len(data), data)
    if len(data) <= WHOLE_BYTES:
        return Entry(path, FILE, mode, len(data), None, put(data))
    return entry_of_blocks(path, mode, (data[at:at + BLOCK_BYTES] for at in range(0, len(data), BLOCK_BYTES)), put)


def entry_of_blocks(path: bytes, mode: int, blocks: Iterable[bytes], put: Put) -> Entry:
    """The entry of a file over `WHOLE_BYTES`, read in blocks that are all `BLOCK_BYTES` long but the last."""
    size, names = 0, bytearray()
    for block in blocks:
        size += len(block)
        names += bytes.fromhex(put(block).removeprefix(DIGEST_PREFIX))
    return Entry(path, BLOCKS, mode, size, bytes(names))


def keep_in(large: dict[str, bytes]) -> Put:
    """Puts into memory."""

    def put(data: bytes) -> str:
        name = digest(data)
        large[name] = data
        return name

    return put


def entries_of(files: Mapping[str, bytes], put: Put, base: Iterable[Entry] = ()) -> list[Entry]:
    """Entries of initial files (mode 0644, folders 0755), laid over `base`."""
    found = {entry.path: entry for entry in base}
    found.setdefault(b"", Entry(b"", FOLDER, 0o755))
    for path, data in files.items():
        name = os.fsencode(path)
        if not _is_clean(name):
            raise SandboxError("initial file needs a clean relative path", kind="sandbox_start", value=path)
        parent = os.path.dirname(name)
        while parent not in found or found[parent].kind != FOLDER:
            found[parent] = Entry(parent, FOLDER, 0o755)
            parent = os.path.dirname(parent)
        found[name] = entry_of_file(name, 0o644, data, put)
    return list(found.values())


def snapshot_digest_of(files: Mapping[str, bytes]) -> str:
    """Digest of a workspace that holds exactly these files."""
    return digest(encode(manifest_of(entries_of(files, digest))))


def store_files(files: Mapping[str, bytes], artifacts: ArtifactStore) -> str:
    """Store the snapshot of a workspace that holds exactly these files; its digest."""
    manifest = encode(manifest_of(entries_of(files, lambda data: artifacts.put(data).digest)))
    return artifacts.put(manifest, MEDIA_TYPE).digest


def store(captured: Captured, artifacts: ArtifactStore) -> str:
    """The manifest comes last, its contents are there: a manifest in the store can always be restored."""
    return artifacts.put(captured.manifest, MEDIA_TYPE).digest


def list_files(artifacts: ArtifactStore, name: str) -> list[FileInfo]:
    """What a snapshot holds, in path order, without its root folder."""
    return [FileInfo(os.fsdecode(entry.path), FILE if entry.kind == BLOCKS else entry.kind, entry.mode, entry.size)
            for entry in load(name, artifacts).entries if entry.path]


def read_file(artifacts: ArtifactStore, name: str, path: str, limit_bytes: int = 16 << 20) -> bytes:
    """A file of a snapshot without a sandbox. Links are followed inside the snapshot only.

    Raises FileNotFoundError if it is absent, IsADirectoryError for a folder, OSError if it is over the limit.
    """
    entry = _resolve({entry.path: entry for entry in load(name, artifacts).entries}, path)
    if entry.kind == FOLDER:
        raise IsADirectoryError(path)
    if entry.size > limit_bytes:
        raise OSError(f"file is over the limit of {limit_bytes} bytes: {path}")
    return b"".join(content_of(entry, artifacts.get))


def content_of(entry: Entry, get: Callable[[str], bytes]) -> Iterator[bytes]:
    """A file's content, a part at a time."""
    if entry.kind != BLOCKS:
        yield entry.content if entry.content is not None else get(entry.digest or "")
        return
    names = entry.content or b""
    for at in range(0, len(names), _DIGEST_BYTES):
        yield get(DIGEST_PREFIX + names[at:at + _DIGEST_BYTES].hex())


def _resolve(entries: Mapping[bytes, Entry], path: str) -> Entry:
    todo = os.fsencode(path).split(b"/")[::-1]
    at, links = b"", 0
    while todo:
        part = todo.pop()
        at = posixpath.normpath(posixpath.join(at, part)) if part else at
        at = b"" if at == b"." else at
        entry = entries.get(at)
        if entry is None or at.startswith(b".."):
            raise FileNotFoundError(path)
        if entry.kind == LINK:
            links += 1
            target = entry.content or b""
            if links > _LINKS_FOLLOWED or target.startswith(b"/"):
                raise FileNotFoundError(path)
            at = os.path.dirname(at)
            todo += target.split(b"/")[::-1]
    return entries[at]


def restore(manifest: Manifest, get: Callable[[str], bytes], folder: Path,
            owner: Owner = None) -> dict[bytes, Identity]:
    """Write a checked manifest into `folder`, which is fresh and ours. Modes are exact; `owner` gets everything.
    Returns the identity of every file as it was written."""
    written: dict[bytes, Identity] = {}
    root = os.fsencode(folder)
    folders: list[tuple[bytes, int]] = []
    for entry in manifest.entries:
        path = os.path.join(root, entry.path) if entry.path else root
        if entry.kind == FOLDER:
            os.makedirs(path, 0o700, exist_ok=not entry.path)
            folders.append((path, entry.mode))
        elif entry.kind == LINK:
            os.symlink(entry.content or b"", path)
        else:
            written[entry.path] = _write(path, entry, content_of(entry, get), owner)
        if owner and entry.kind in (FOLDER, LINK):
            os.chown(path, *owner, follow_symlinks=False)
    for path, mode in reversed(folders):
        os.chmod(path, mode)
    return written


def _write(path: bytes, entry: Entry, parts: Iterable[bytes], owner: Owner) -> Identity:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        for part in parts:
            if entry.kind == BLOCKS and part.count(0) == len(part):
                os.ftruncate(descriptor, os.lseek(descriptor, len(part), os.SEEK_CUR))  # stays a hole
                continue
            view = memoryview(part)
            while view:
                view = view[os.write(descriptor, view):]
        if owner:
            os.fchown(descriptor, *owner)
        os.fchmod(descriptor, stat.S_IMODE(entry.mode))
        return Identity.of(os.fstat(descriptor))
    finally:
        os.close(descriptor)
