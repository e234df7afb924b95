"""Tar archives of root file systems: plain ones (`docker export`, debootstrap) and layered ones (`docker save`, OCI).

Members are only looked at here; what becomes of their names is the tree's to say. A compressed archive is unpacked to a
temporary file first, so members can be read in any order. An archive that ends early is damaged, not smaller.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import json
import lzma
import os
import platform
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from sandboxes.roottree import MAX_BYTES, Content, File, Folder, Link, Tree, damaged

_WHITEOUT, _OPAQUE, _RESERVED = b".wh.", b".wh..wh..opq", b".wh..wh."
_PARTS = ("blobs/", "index.json", "oci-layout")
"""Members of a layered archive; with what lies beside them as `NAME.json` and `NAME/layer.tar`."""
_MAX_JSON = 8 << 20
_MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
Find = Callable[[str], BinaryIO | None]
"""A member of a layered archive by its name."""


class Read(NamedTuple):
    tree: Tree
    environment: dict[str, str]
    """What the image's configuration says that commands find in theirs."""


def read_archive(path: Path, scratch: Path, closing: contextlib.ExitStack) -> Read:
    """The tree of an archive. What is kept open for it is closed with `closing`; `scratch` is for temporary files."""
    return _Reader(str(path), scratch, closing).whole(path)


def read_layout(folder: Path, scratch: Path, closing: contextlib.ExitStack) -> Read | None:
    """The tree of a folder in OCI layout; None if it is none."""
    if not (folder / "oci-layout").is_file() or not (folder / "index.json").is_file():
        return None

    def find(name: str) -> BinaryIO | None:
        path = folder / name
        inside = path.resolve().is_relative_to(folder.resolve())
        return path.open("rb") if inside and path.is_file() else None

    return _Reader(str(folder), scratch, closing).layered(find)


class _Reader:
    def __init__(self, origin: str, scratch: Path, closing: contextlib.ExitStack) -> None:
        self.origin, self.scratch, self.closing = origin, scratch, closing
        self.tree = Tree(origin)

    def whole(self, path: Path) -> Read:
        with self._errors():
            file = self._plain(path.open("rb"))
            found: dict[str, tarfile.TarInfo] = {}
            for _, member in self._members(file):
                name = member.name.removeprefix("./")
                if name.startswith(_PARTS) or (name.count("/") < 2 and name.endswith(("/layer.tar", ".json"))):
                    found[name] = member
            if not _is_layered(found):
                self._lay(file)
                return Read(self.tree, {})

            def find(name: str) -> BinaryIO | None:
                member = found.get(name)
                for _ in range(3):  # a layer that is there twice is a link the second time
                    if member is None or member.isreg():
                        break
                    above = os.path.dirname(member.name) if member.issym() else ""
                    member = found.get(os.path.normpath(os.path.join(above, member.linkname)))
                return _part(file, member) if member is not None and member.isreg() else None

            return self.layered(find)

    def layered(self, find: Find) -> Read:
        with self._errors():
            configuration, layers = _described(find, self.origin)
            wanted, there = _MACHINES.get(platform.machine()), configuration.get("architecture")
            if wanted and there and there != wanted:
                raise damaged(f"it is for {there}, this machine is {wanted}", self.origin)
            for name in layers:
                file = find(name)
                if file is None:
                    raise damaged("a layer is missing", self.origin, name)
                self._lay(self._plain(file))
            return Read(self.tree, _environment_of(configuration))

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, ValueError, KeyError,
                TypeError, AttributeError) as wrong:
            raise damaged(f"the archive cannot be read ({wrong})", self.origin,
                          hint="make it with `docker export`, `docker save` or tar") from None

    def _plain(self, file: BinaryIO) -> BinaryIO:
        """The archive uncompressed."""
        self.closing.enter_context(file)
        start = file.read(6)
        file.seek(0)
        kind = next((kind for magic, kind in _MAGIC.items() if start.startswith(magic)), None)
        if kind is None:
            return file
        unpacked = self.closing.enter_context(tempfile.TemporaryFile(dir=self.scratch))  # noqa: SIM115
        size = 0
        with _decompressor(kind, file) as stream:
            while block := stream.read(1 << 20):
                size += unpacked.write(block)
                if size > MAX_BYTES:
                    raise damaged(f"it has more than {MAX_BYTES >> 30} GiB", self.origin)
        return cast(BinaryIO, unpacked)

    def _members(self, file: BinaryIO) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
        file.seek(0)
        with tarfile.open(fileobj=file, mode="r:", errors="surrogateescape") as tar:
            while (member := tar.next()) is not None:
                tar.members = []  # type: ignore[attr-defined]  # it would keep them all
                yield tar, member
            file.seek(tar.offset)
            end = file.read(tarfile.BLOCKSIZE)
            if len(end) < tarfile.BLOCKSIZE or any(end):
                raise damaged("the archive is damaged or ends in the middle", self.origin)

    def _lay(self, file: BinaryIO) -> None:
        """One layer over what is there. What it hides goes first, wherever in the layer that is said."""
        for _, member in self._members(file):
            self._hide(os.fsencode(member.name))
        for tar, member in self._members(file):
            path = os.fsencode(member.name)
            if not os.path.basename(path).startswith(_WHITEOUT):
                self._put(tar, file, path, member)

    def _hide(self, path: bytes) -> None:
        above, name = os.path.split(path)
        if name == _OPAQUE:
            self.tree.empty(above)
        elif name == _WHITEOUT:
            raise damaged("it hides a file without a name", self.origin, path)
        elif name.startswith(_WHITEOUT) and not name.startswith(_RESERVED):
            self.tree.hide(os.path.join(above, name.removeprefix(_WHITEOUT)))

    def _put(self, tar: tarfile.TarFile, file: BinaryIO, path: bytes, member: tarfile.TarInfo) -> None:
        if member.isdir():
            self.tree.put(path, Folder({}))
        elif member.issym():
            self.tree.put(path, Link(os.fsencode(member.linkname)))
        elif member.islnk():
            same = self.tree.find(os.fsencode(member.linkname))
            if not isinstance(same, File | Link):
                raise damaged("a hard link leads to no file of it", self.origin, path)
            self.tree.put(path, same)
        elif member.isreg():
            self.tree.put(path, File(_content(tar, file, member), member.size, bool(member.mode & 0o111)))
        else:
            self.tree.left_out.append(path)


def _content(tar: tarfile.TarFile, file: BinaryIO, member: tarfile.TarInfo) -> Content:
    if member.issparse():
        return lambda: cast(BinaryIO, tar.extractfile(member))
    start, size = member.offset_data, member.size  # not the member: there may be a million
    return lambda: cast(BinaryIO, _Part(file, start, size))


def _part(file: BinaryIO, member: tarfile.TarInfo) -> BinaryIO:
    return cast(BinaryIO, _Part(file, member.offset_data, member.size))


class _Part(io.RawIOBase):
    """A part of a file as a file of its own. Closing it closes nothing: others are parts of the same file."""

    def __init__(self, file: BinaryIO, start: int, size: int) -> None:
        super().__init__()
        self._file, self._start, self._size, self._at = file, start, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        left = max(0, self._size - self._at)
        self._file.seek(self._start + self._at)
        data = self._file.read(left if size < 0 else min(size, left))
        self._at += len(data)
        return data


def _decompressor(kind: str, file: BinaryIO) -> BinaryIO:
    if kind == "zstd":
        import zstandard

        return cast(BinaryIO, zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True))
    opened: Any = {"gzip": gzip.GzipFile, "bzip2": bz2.BZ2File, "xz": lzma.LZMAFile}[kind]
    return cast(BinaryIO, opened(file) if kind != "gzip" else opened(fileobj=file))


def _is_layered(names: Collection[str]) -> bool:
    if "manifest.json" in names:
        return any(name.startswith("blobs/") or name.endswith("/layer.tar") for name in names)
    return "index.json" in names and "oci-layout" in names


def _described(find: Find, origin: str) -> tuple[dict[str, Any], list[str]]:
    """The configuration and the names of the layers, the lowest first."""
    saved = find("manifest.json")
    if saved is not None:
        images = _json(saved)
        if len(images) != 1:
            raise damaged(f"the archive holds {len(images)} images", origin, hint="save one alone")
        return _json(_required(find, images[0]["Config"], origin)), list(images[0]["Layers"])
    manifest = _json(_required(find, "index.json", origin))
    for _ in range(4):
        if "manifests" not in manifest:
            break
        manifest = _json(_required(find, _blob(_choose(manifest["manifests"], origin)), origin))
    return (_json(_required(find, _blob(manifest["config"]), origin)), [_blob(layer) for layer in manifest["layers"]])


def _choose(manifests: list[dict[str, Any]], origin: str) -> dict[str, Any]:
    wanted = _MACHINES.get(platform.machine())
    fitting = [one for one in manifests if one.get("platform", {}).get("architecture", wanted) == wanted]
    if len(fitting) != 1:
        raise damaged(f"the archive holds {len(fitting)} images for this machine", origin, hint="save one alone")
    return fitting[0]


def _blob(described: dict[str, Any]) -> str:
    kind, _, value = described["digest"].partition(":")
    return f"blobs/{kind}/{value}"


def _required(find: Find, name: str, origin: str) -> BinaryIO:
    file = find(name)
    if file is None:
        raise damaged("a part of it is missing", origin, name)
    return file


def _json(file: BinaryIO) -> Any:
    with file:
        return json.loads(file.read(_MAX_JSON))


def _environment_of(configuration: dict[str, Any]) -> dict[str, str]:
    given = (configuration.get("config") or {}).get("Env") or []
    return {name: value for name, equals, value in (str(one).partition("=") for one in given) if name and equals}
