"""Snapshots without a sandbox: made of given files, stored, listed, and read file by file."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from artifacts.store import ArtifactStore
from sandboxes.manifest import (
    BLOCKS,
    FILE,
    FOLDER,
    LINK,
    MEDIA_TYPE,
    NAME,
    Attribute,
    Entry,
    Get,
    Manifest,
    Put,
    encode,
    entry_of_file,
    is_clean,
    load,
    manifest_of,
    settled,
)
from schemas.errors import SandboxError
from schemas.ids import digest

EMPTY = manifest_of([Entry(b"", FOLDER, 0o755)])
_LINKS_FOLLOWED = 40


class FileInfo(NamedTuple):
    path: str
    kind: str
    mode: int
    size: int


def keep_in(large: dict[str, bytes]) -> Put:
    """Puts into memory."""

    def put(data: bytes) -> str:
        name = digest(data)
        large[name] = data
        return name

    return put


def laid_over(files: Mapping[str, bytes], put: Put, base: Manifest, get: Get) -> Manifest:
    """Initial files (mode 0644, folders 0755) over a snapshot: whatever is in the way of one is gone. `get` has the
    contents of the snapshot."""
    found = {entry.path: entry for entry in base.entries}
    for path, data in files.items():
        name = os.fsencode(path)
        if not is_clean(name):
            raise SandboxError("initial file needs a clean relative path", kind="sandbox_start", value=path)
        if name in found and found[name].kind == FOLDER:
            for below in [one for one in found if one.startswith(name + b"/")]:
                del found[below]
        parent = os.path.dirname(name)
        while parent not in found or found[parent].kind != FOLDER:
            found[parent] = Entry(parent, FOLDER, 0o755)
            parent = os.path.dirname(parent)
        found[name] = entry_of_file(name, 0o644, data, put)
    kept = {entry.path for entry in base.entries if found.get(entry.path) is entry}
    moved = _first_names(base, found, kept)
    entries = settled(found.values(), put, get)
    return manifest_of(entries, (Attribute(moved.get(one.path, one.path), one.name, one.value)
                                 for one in base.attributes if one.path in kept or one.path in moved))


def _first_names(base: Manifest, found: dict[bytes, Entry], kept: set[bytes]) -> dict[bytes, bytes]:
    """Where the first name of a file is gone, the next one has its content: what has become of which."""
    before = {entry.path: entry for entry in base.entries}
    moved: dict[bytes, bytes] = {}
    for entry in base.entries:
        first = entry.content or b""
        if entry.kind == NAME and entry.path in kept and first not in kept:
            if first in moved:
                found[entry.path] = Entry(entry.path, NAME, entry.mode, entry.size, moved[first])
            else:
                moved[first] = entry.path
                found[entry.path] = msgspec.structs.replace(before[first], path=entry.path)
    return moved


def _no_content(name: str) -> bytes:
    raise AssertionError(f"no content has this digest: {name}")


def snapshot_digest_of(files: Mapping[str, bytes]) -> str:
    """Digest of a workspace that holds exactly these files."""
    return digest(encode(laid_over(files, digest, EMPTY, _no_content)))


def store_files(files: Mapping[str, bytes], artifacts: ArtifactStore) -> str:
    """Store the snapshot of a workspace that holds exactly these files; its digest."""
    manifest = encode(laid_over(files, lambda data: artifacts.put(data).digest, EMPTY, artifacts.get))
    return artifacts.put(manifest, MEDIA_TYPE).digest


def list_files(artifacts: ArtifactStore, name: str) -> list[FileInfo]:
    """What a snapshot holds, in path order, without its root folder."""
    return [FileInfo(os.fsdecode(entry.path), FILE if entry.kind in (BLOCKS, NAME) else entry.kind, entry.mode,
                     entry.size) for entry in load(name, artifacts).entries if entry.path]


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


def content_of(entry: Entry, get: Get) -> Iterator[bytes]:
    """A file's content, a part at a time. Raises SandboxError (kind `snapshot`) if it is of another size."""
    left = entry.size
    for part in _parts(entry, get) if entry.content is None or entry.kind == BLOCKS else (entry.content,):
        left -= len(part)
        if left < 0:
            break
        yield part
    if left:
        raise SandboxError("snapshot manifest has a file whose content is of another size", kind="snapshot",
                           value=entry.path)


def _parts(entry: Entry, get: Get) -> Iterator[bytes]:
    before, part = "", b""
    for name in entry.parts:
        if name != before:  # hole after hole is read once
            before, part = name, get(name)
        yield part


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
    entry = entries[at]
    return entries[entry.content or b""] if entry.kind == NAME else entry
