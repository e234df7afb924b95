"""Where SQL finds the files of a lake: a directory is read as it is, a bucket through a file system of ours.

Invariants of ours: it reads Parquet files of this lake's tables and nothing else, writes and lists nothing, and says
nothing about a file but its size. Files of tables never change, so a size that was asked once is not asked again.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from artifacts.folder import S3_SCHEME, Folder
from artifacts.local_folder import LocalFolder
from schemas.errors import UnavailableError

if TYPE_CHECKING:
    import duckdb

_SCHEME = "lake://"
_DATA_FILE = re.compile(r"(?!.*\.\.)([^/]+/)*[a-z_]+/[^/]+\.parquet")
_SIZES = 100_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def sql_path(url: str) -> str:
    """What a file's or a folder's URL is called in SQL."""
    return _SCHEME + url.removeprefix(S3_SCHEME) if url.startswith(S3_SCHEME) else url


def attach(database: duckdb.DuckDBPyConnection, root: Folder) -> None:
    """Let the engine read this lake's files."""
    if not isinstance(root, LocalFolder):
        database.register_filesystem(_file_system(root))


def _file_system(root: Folder) -> Any:
    try:
        from fsspec.spec import AbstractFileSystem
    except ImportError:
        raise UnavailableError("SQL on S3-compatible storage needs the package fsspec",
                               hint="pip install 'headrace[s3]'") from None

    base = sql_path(root.url) + "/"

    class TableFiles(AbstractFileSystem):  # type: ignore[misc]
        protocol = _SCHEME.removesuffix("://")
        cachable = False

        def __init__(self) -> None:
            super().__init__()
            self._sizes: dict[str, int] = {}

        @classmethod
        def _strip_protocol(cls, path: Any) -> Any:
            return path

        def info(self, path: str, **_: Any) -> dict[str, Any]:
            name = _name(path, base)
            if name not in self._sizes:
                size = root.size(name)
                if size is None:
                    raise FileNotFoundError(path)
                if len(self._sizes) >= _SIZES:
                    self._sizes.clear()
                self._sizes[name] = size
            return {"name": path, "size": self._sizes[name], "type": "file"}

        def modified(self, path: str) -> datetime:
            return _EPOCH

        def ls(self, path: str, detail: bool = True, **_: Any) -> Any:
            raise PermissionError(path)

        def exists(self, path: str, **_: Any) -> bool:
            try:
                self.info(path)
            except FileNotFoundError:
                return False
            return True

        def glob(self, path: str, **_: Any) -> list[str]:
            """There are no patterns: the file with this very name."""
            with suppress(PermissionError):
                return [path] if self.exists(path) else []
            return []

        def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
            if mode != "rb":
                raise PermissionError(path)
            return root.reader(_name(path, base), self.info(path)["size"])

    return TableFiles()


def _name(path: str, base: str) -> str:
    name = path.removeprefix(base)
    if name == path or not _DATA_FILE.fullmatch(name):
        raise PermissionError(path)
    return name
