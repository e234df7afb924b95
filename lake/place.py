"""Where SQL finds the files of a lake: a directory is read as it is, a bucket through a file system of ours.

Invariants of ours: it reads Parquet files of this lake's tables and nothing else, writes and lists nothing. A file's
path tells its size, which the table's log knows, so that it need not be asked.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from artifacts.folder import S3_SCHEME, Folder
from artifacts.local_folder import LocalFolder
from schemas.errors import UnavailableError

if TYPE_CHECKING:
    import duckdb

_SCHEME = "lake://"
_DATA_FILE = re.compile(r"(?!.*\.\.)((?:[^/]+/)*[a-z_]+/[^/]+\.parquet)#(\d{1,15})")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def sql_folder(url: str) -> str:
    return _SCHEME + url.removeprefix(S3_SCHEME) if url.startswith(S3_SCHEME) else url


def sql_file(folder: str, name: str, size: int) -> str:
    return f"{sql_folder(folder)}/{name}" + (f"#{size}" if folder.startswith(S3_SCHEME) else "")


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

    base = sql_folder(root.url) + "/"

    class TableFiles(AbstractFileSystem):  # type: ignore[misc]
        protocol = _SCHEME.removesuffix("://")
        cachable = False

        @classmethod
        def _strip_protocol(cls, path: Any) -> Any:
            return path

        def info(self, path: str, **_: Any) -> dict[str, Any]:
            return {"name": path, "size": _name_and_size(path, base)[1], "type": "file"}

        def modified(self, path: str) -> datetime:
            """Files of tables never change."""
            return _EPOCH

        def exists(self, path: str, **_: Any) -> bool:
            return _DATA_FILE.fullmatch(path.removeprefix(base)) is not None

        def glob(self, path: str, **_: Any) -> list[str]:
            """There are no patterns: the file with this very name."""
            return [path] if self.exists(path) else []

        def ls(self, path: str, detail: bool = True, **_: Any) -> Any:
            raise PermissionError(path)

        def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
            if mode != "rb":
                raise PermissionError(path)
            return root.reader(*_name_and_size(path, base))

    return TableFiles()


def _name_and_size(path: str, base: str) -> tuple[str, int]:
    found = _DATA_FILE.fullmatch(path.removeprefix(base))
    if found is None or not path.startswith(base):
        raise PermissionError(path)
    return found.group(1), int(found.group(2))
