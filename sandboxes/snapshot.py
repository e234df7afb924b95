"""Workspace snapshots: a canonical manifest whose digest is the workspace's digest.

The manifest is itself an artifact: sorted entries of path, kind, mode and content (inline up to 4 KiB, else the digest
of an artifact) or link target. No times, owners or inodes, so equal workspaces have equal digests on any machine.
Names are bytes: newlines and non-UTF-8 are fine. Sockets, pipes and devices are left out and reported.
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from artifacts.store import ArtifactStore
from schemas.errors import SandboxError
from schemas.ids import digest

FORMAT = "headrace.snapshot.v1"
MEDIA_TYPE = "application/vnd.headrace.snapshot+msgpack"
INLINE_BYTES = 4096
FOLDER, FILE, LINK = "d", "f", "l"
_LINKS_FOLLOWED = 40
Owner = tuple[int, int] | None


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One name in the workspace; the root folder itself is the entry with the empty path."""

    path: bytes
    kind: str
    mode: int
    size: int = 0
    content: bytes | None = None
    """File content when small, or the target of a link."""
    digest: str | None = None
    """The artifact that holds a larger file's content."""


class Manifest(msgspec.Struct, frozen=True, array_like=True):
    format: str
    entries: list[Entry]


class Captured(NamedTuple):
    """A workspace as read: what to store, and what could not be part of it."""

    manifest: bytes
    digest: str
    large: dict[str, bytes]
    skipped: list[bytes]


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
        if not inside or (before is not None and entry.path <= before) or entry.kind not in (FOLDER, FILE, LINK):
            raise SandboxError("snapshot manifest names a path outside of its folders, or out of order",
                               kind="snapshot", where=name, value=entry.path)
        before = entry.path
        if entry.kind == FOLDER:
            folders.add(entry.path)


def _is_clean(path: bytes) -> bool:
    return b"\0" not in path and not any(part in (b"", b".", b"..") for part in path.split(b"/"))


def entry_of_file(path: bytes, mode: int, data: bytes, large: dict[str, bytes]) -> Entry:
    """A file's entry; content that does not go inline is added to `large`."""
    if len(data) <= INLINE_BYTES:
        return Entry(path, FILE, mode, len(data), data)
    name = digest(data)
    large[name] = data
    return Entry(path, FILE, mode, len(data), None, name)


def entries_of(files: Mapping[str, bytes], large: dict[str, bytes],
               base: Iterable[Entry] = ()) -> list[Entry]:
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
        found[name] = entry_of_file(name, 0o644, data, large)
    return list(found.values())


def snapshot_digest_of(files: Mapping[str, bytes]) -> str:
    """Digest of a workspace that holds exactly these files."""
    return digest(encode(manifest_of(entries_of(files, {}))))


def store_files(files: Mapping[str, bytes], artifacts: ArtifactStore) -> str:
    """Store the snapshot of a workspace that holds exactly these files; its digest."""
    large: dict[str, bytes] = {}
    manifest = encode(manifest_of(entries_of(files, large)))
    return store(Captured(manifest, digest(manifest), large, []), artifacts)


def store(captured: Captured, artifacts: ArtifactStore) -> str:
    """Contents first, manifest last: a manifest in the store can always be restored."""
    if not artifacts.has(captured.digest):
        for data in captured.large.values():
            artifacts.put(data)
        artifacts.put(captured.manifest, MEDIA_TYPE)
    return captured.digest


def list_files(artifacts: ArtifactStore, name: str) -> list[FileInfo]:
    """What a snapshot holds, in path order, without its root folder."""
    return [FileInfo(os.fsdecode(entry.path), entry.kind, entry.mode, entry.size)
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
    return content_of(entry, artifacts.get)


def content_of(entry: Entry, get: Callable[[str], bytes]) -> bytes:
    return entry.content if entry.content is not None else get(entry.digest or "")


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


def restore(manifest: Manifest, get: Callable[[str], bytes], folder: Path, owner: Owner = None) -> None:
    """Write a checked manifest into `folder`, which is fresh and ours. Modes are exact; `owner` gets everything."""
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
            _write(path, entry, content_of(entry, get), owner)
        if owner and entry.kind != FILE:
            os.chown(path, *owner, follow_symlinks=False)
    for path, mode in reversed(folders):
        os.chmod(path, mode)


def _write(path: bytes, entry: Entry, data: bytes, owner: Owner) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view):]
        if owner:
            os.fchown(descriptor, *owner)
        os.fchmod(descriptor, stat.S_IMODE(entry.mode))
    finally:
        os.close(descriptor)
