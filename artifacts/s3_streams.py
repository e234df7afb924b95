"""Files of a bucket as Python file objects: what Arrow and DuckDB read and write through.

One read is one request, however long it is; short ones are served from what was fetched ahead. What lies at the end of
a file is fetched together: a Parquet file tells there what it holds.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from obstore import WritableFile

_AHEAD_BYTES = 64 << 10


class Reader(io.RawIOBase):
    """`fetch(start, end)` gives the bytes between. Each thread has a position of its own: an engine that reads one file
    in several threads seeks and reads in two steps."""

    def __init__(self, size: int, fetch: Callable[[int, int], bytes]) -> None:
        self.size = size
        self._fetch = fetch
        self._own = threading.local()
        self._ahead = (0, b"")
        """Bytes that were fetched with others, and where they start."""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return getattr(self._own, "at", 0)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self.tell(), io.SEEK_END: self.size}[whence]
        self._own.at = max(0, base + offset)
        return self.tell()

    def readinto(self, buffer: Any) -> int:
        view, at = memoryview(buffer).cast("B"), self.tell()
        data = self._read(at, min(len(view), self.size - at))
        view[:len(data)] = data
        self._own.at = at + len(data)
        return len(data)

    def _read(self, at: int, count: int) -> bytes:
        if count <= 0:
            return b""
        start, ahead = self._ahead
        if not start <= at <= at + count <= start + len(ahead):
            if count >= _AHEAD_BYTES:
                return self._fetch(at, at + count)
            start = min(at, max(0, self.size - _AHEAD_BYTES))
            ahead = self._fetch(start, min(self.size, start + _AHEAD_BYTES))
            self._ahead = start, ahead
        return ahead[at - start:at - start + count]


class Writer(io.RawIOBase):
    """Passes on to an upload in parts; who opened the upload ends it."""

    def __init__(self, upload: WritableFile) -> None:
        self._upload = upload

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return self._upload.write(bytes(data))
