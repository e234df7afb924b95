"""The form of a snapshot: a canonical manifest whose digest is the workspace's digest.

Sorted entries of path, kind, mode and content (inline up to 4 KiB, else the digest of an artifact) or link target.
A file over 64 MiB is a list of 16 MiB blocks: none is ever in memory as a whole. Of a file with several names the
first one in path order has the content, the others name it. No times, owners or inodes, and nothing of where holes
are, so equal workspaces have equal digests on any machine. Names are bytes: newlines and non-UTF-8 are fine.
A manifest may come from anywhere: `load` lets through only what `capture` could have written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from artifacts.store import ArtifactStore
from schemas.errors import SandboxError
from schemas.ids import DIGEST_PREFIX, is_digest

FORMAT = "headrace.snapshot.v1"
RICH_FORMAT = "headrace.snapshot.v2"
"""With further names of files, or attributes. All else keeps its form, and so its digest, of before there were any."""
MEDIA_TYPE = "application/vnd.headrace.snapshot+msgpack"
INLINE_BYTES = 4096
ALL_INLINE_BYTES = 16 << 20
"""With more small files than this no content goes inline: the manifest is written anew by each snapshot."""
WHOLE_BYTES = 64 << 20
BLOCK_BYTES = 16 << 20
MAX_DEPTH = 200
MAX_ENTRIES = 200_000
MAX_BYTES = 2 << 30
MAX_ATTRIBUTE_BYTES = 16 << 20
LIMITS = (f"limits: {MAX_ENTRIES} names, {MAX_BYTES >> 30} GiB, {MAX_DEPTH} folders deep, "
          f"{MAX_ATTRIBUTE_BYTES >> 20} MiB of attributes")
FOLDER, FILE, LINK, BLOCKS, NAME = KINDS = "d", "f", "l", "b", "n"
"""`n` is a further name of a file: a hard link. `b` is a file in blocks."""
ATTRIBUTE_PREFIX = b"user."
_DIGEST_BYTES = 32
_MODES = 0o7777
_NAME_BYTES, _TARGET_BYTES = 255, 4095
Put = Callable[[bytes], str]
"""Stores bytes; their digest."""
Get = Callable[[str], bytes]


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One name in the workspace; the root folder itself is the entry with the empty path."""

    path: bytes
    kind: str
    mode: int
    size: int = 0
    content: bytes | None = None
    """File content when small, the target of a link, the path of a further name's first name, or the bare digests of a
    file's blocks one after another."""
    digest: str | None = None
    """The artifact that holds a larger file's content."""

    @property
    def parts(self) -> list[str]:
        """The artifacts that hold the content."""
        if self.kind == BLOCKS:
            names = self.content or b""
            return [DIGEST_PREFIX + names[at:at + _DIGEST_BYTES].hex() for at in range(0, len(names), _DIGEST_BYTES)]
        return [] if self.digest is None else [self.digest]


class Attribute(msgspec.Struct, frozen=True, array_like=True):
    """One extended attribute (`user.*`) of a file or folder; never of a further name."""

    path: bytes
    name: bytes
    value: bytes


class Manifest(msgspec.Struct, frozen=True, array_like=True):
    format: str
    entries: list[Entry]
    attributes: list[Attribute] = []


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Manifest)


def manifest_of(entries: Iterable[Entry], attributes: Iterable[Attribute] = ()) -> Manifest:
    ordered = sorted(entries, key=lambda entry: entry.path)
    found = sorted(attributes, key=lambda one: (one.path, one.name))
    rich = bool(found) or any(entry.kind == NAME for entry in ordered)
    return Manifest(RICH_FORMAT if rich else FORMAT, ordered, found)


def encode(manifest: Manifest) -> bytes:
    """The one serialisation of a manifest."""
    return _ENCODER.encode(manifest if manifest.format == RICH_FORMAT else (manifest.format, manifest.entries))


def load(name: str, artifacts: ArtifactStore) -> Manifest:
    """The manifest of a digest, checked: every path is relative, clean and below folders of the same manifest.

    Raises ArtifactError where it is missing or altered, SandboxError (kind `snapshot`) where it is no manifest.
    """
    try:
        manifest = _DECODER.decode(artifacts.get(name))
    except msgspec.MsgspecError as wrong:
        raise SandboxError(f"snapshot manifest cannot be read ({wrong})", kind="snapshot", value=name) from None
    if manifest.format not in (FORMAT, RICH_FORMAT) or not manifest.entries or manifest.entries[0].path:
        raise SandboxError("not a snapshot manifest", kind="snapshot", where=name, value=manifest.format)
    _Check(manifest, name).all()
    return manifest


class _Check:
    def __init__(self, manifest: Manifest, name: str) -> None:
        self.manifest, self.name = manifest, name
        self.folders: set[bytes] = set()
        self.files: dict[bytes, Entry] = {}
        self.size_bytes = 0

    def all(self) -> None:
        before = None
        for entry in self.manifest.entries:
            path = entry.path
            if (before is not None and path <= before) or not self.is_inside(path):
                raise self.wrong("names a path outside of its folders, or out of order", path)
            if problem := self.problem(entry):
                raise self.wrong(problem, path)
            before = path
        if len(self.manifest.entries) > MAX_ENTRIES or self.size_bytes > MAX_BYTES:
            raise self.wrong("is over the limits of a workspace", b"")
        self.attributes()

    def is_inside(self, path: bytes) -> bool:
        if not path:
            return True
        folder, _, name = path.rpartition(b"/")
        clean = name not in (b"", b".", b"..") and len(name) <= _NAME_BYTES and b"\0" not in name
        return clean and path[:1] != b"/" and folder in self.folders and path.count(b"/") <= MAX_DEPTH

    def problem(self, entry: Entry) -> str:
        content = entry.content
        self.size_bytes += entry.size if entry.kind != NAME else 0
        if not 0 <= entry.mode <= _MODES or entry.size < 0:
            return "has a mode or a size that no file has"
        if entry.kind == FOLDER:
            self.folders.add(entry.path)
            return ""
        if not entry.path:
            return "has no root folder"
        if entry.kind == FILE:
            self.files[entry.path] = entry
            held = content is not None and entry.digest is None and len(content) == entry.size
            stored = content is None and entry.digest is not None and is_digest(entry.digest)
            return "" if held or stored else "has a file whose content is not what it says"
        if entry.kind == BLOCKS:
            self.files[entry.path] = entry
            whole = len(content or b"") == _DIGEST_BYTES * -(-entry.size // BLOCK_BYTES)
            return "" if whole else "names another number of blocks than its file has"
        if entry.kind == LINK:
            fits = content is not None and 0 < len(content) <= _TARGET_BYTES and b"\0" not in content
            return "" if fits else "has a link to nowhere"
        if entry.kind == NAME and self.manifest.format == RICH_FORMAT:
            first = self.files.get(content or b"")
            same = first is not None and (first.mode, first.size) == (entry.mode, entry.size)
            return "" if same else "has a further name of what is no file before it"
        return "has an entry of a kind that is not known"

    def attributes(self) -> None:
        before, size = None, 0
        for path, name, value in ((one.path, one.name, one.value) for one in self.manifest.attributes):
            known = path in self.files or path in self.folders
            named = name.startswith(ATTRIBUTE_PREFIX) and b"\0" not in name and len(name) <= _NAME_BYTES
            if not (known and named) or (before is not None and (path, name) <= before):
                raise self.wrong("has an attribute out of order, of no file or of no user", path)
            before = path, name
            size += len(name) + len(value)
        if size > MAX_ATTRIBUTE_BYTES:
            raise self.wrong("is over the limits of a workspace", b"")

    def wrong(self, what: str, path: bytes) -> SandboxError:
        return SandboxError(f"snapshot manifest {what}", kind="snapshot", where=self.name, value=path)


def entry_of_file(path: bytes, mode: int, data: bytes, put: Put) -> Entry:
    """A file's entry; content that does not go inline is put."""
    if len(data) <= INLINE_BYTES:
        return Entry(path, FILE, mode, len(data), data)
    if len(data) <= WHOLE_BYTES:
        return Entry(path, FILE, mode, len(data), None, put(data))
    return entry_of_blocks(path, mode, (data[at:at + BLOCK_BYTES] for at in range(0, len(data), BLOCK_BYTES)), put)


def entry_of_blocks(path: bytes, mode: int, blocks: Iterable[bytes], put: Put) -> Entry:
    """The entry of a file over `WHOLE_BYTES`, read in blocks that are all `BLOCK_BYTES` long but the last."""
    size, names, name = 0, bytearray(), ""
    before: bytes | None = None
    for block in blocks:
        size += len(block)
        if block is not before:  # hole after hole
            before, name = block, put(block)
        names += bytes.fromhex(name.removeprefix(DIGEST_PREFIX))
    return Entry(path, BLOCKS, mode, size, bytes(names))


def stored_apart(entry: Entry, put: Put) -> Entry:
    """With its content in an artifact of its own."""
    if entry.kind != FILE or not entry.content:
        return entry
    return msgspec.structs.replace(entry, content=None, digest=put(entry.content))


def settled(entries: Iterable[Entry], put: Put, get: Get) -> list[Entry]:
    """Small contents inline if all of them fit there, else none but the empty: however the entries came to be."""
    found = list(entries)
    small = [entry for entry in found if entry.kind == FILE and entry.size <= INLINE_BYTES]
    if sum(entry.size for entry in small) > ALL_INLINE_BYTES:
        return [stored_apart(entry, put) for entry in found]
    if all(entry.digest is None for entry in small):
        return found
    return [entry if entry.digest is None or entry.kind != FILE or entry.size > INLINE_BYTES
            else msgspec.structs.replace(entry, content=get(entry.digest), digest=None) for entry in found]


def is_clean(path: bytes) -> bool:
    return b"\0" not in path and not any(part in (b"", b".", b"..") for part in path.split(b"/"))
