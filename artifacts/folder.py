"""The Folder contract: a place that holds files, a local directory or a prefix of an S3 bucket.

What it promises: a write, a `create`, a `replace` and a closed `writer` are durable when they return, and a reader sees
a file whole or not at all (a `writer`'s file in a local directory excepted: name it to others after it is closed).
`create` and `replace` are atomic between processes. Names are relative, with `/` between their parts.

What goes wrong in a place is an OSError with one line in `strerror`: FileNotFoundError for a missing file,
PermissionError for refused credentials, OSError for what may pass (a full disk, an endpoint that is down).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

from schemas.errors import ConfigError

S3_SCHEME = "s3://"


class Stored(NamedTuple):
    """One file of a folder; `modified` in microseconds UTC."""

    name: str
    size_bytes: int
    modified: int


class Folder(Protocol):
    @property
    def url(self) -> str:
        """What Delta and messages name: an absolute path or `s3://bucket/prefix`."""
        ...

    @property
    def options(self) -> Mapping[str, str]:
        """Storage options for Delta; nothing for a local directory. They hold secrets: never print them."""
        ...

    def at(self, name: str) -> Folder:
        """The folder below; nothing is made."""
        ...

    def make(self) -> None:
        """The folder itself, where there is such a thing."""
        ...

    def read(self, name: str) -> bytes: ...

    def reader(self, name: str, size: int | None = None) -> BinaryIO:
        """The file for reading here and there, without holding it whole. A known size saves a request."""
        ...

    def write(self, name: str, data: bytes) -> None:
        """Make or replace the file."""
        ...

    def writer(self, name: str) -> AbstractContextManager[BinaryIO]:
        """A new file in pieces, in bounded memory; after an exception inside there is none."""
        ...

    def create(self, name: str, data: bytes) -> bool:
        """Make the file; False if it was there."""
        ...

    def replace(self, name: str, data: bytes, expected: bytes | None) -> bool:
        """Compare and set: write if the file holds `expected` (None: if there is none), else False."""
        ...

    def size(self, name: str) -> int | None:
        """In bytes; None if there is no such file."""
        ...

    def list(self, prefix: str = "") -> Iterator[Stored]:
        """Every file below whose name starts so, in whatever order."""
        ...

    def remove(self, name: str) -> None:
        """Nothing happens if it is not there."""
        ...

    def sync(self, names: Iterable[str]) -> None:
        """Make files durable that another library wrote; those that are not there are passed over."""
        ...


def open_folder(location: str | Path, environment: Mapping[str, str] | None = None) -> Folder:
    """A path, or `s3://bucket/prefix` with endpoint and credentials from the usual AWS_ variables. Touches nothing."""
    text = str(location)
    if text.startswith(S3_SCHEME):
        from artifacts.s3_folder import open_s3

        return open_s3(text, os.environ if environment is None else environment)
    if "://" in text:
        raise ConfigError("unknown kind of storage", value=text, hint="a path, or s3://bucket/prefix")
    from artifacts.local_folder import LocalFolder

    return LocalFolder(Path(location).absolute())
