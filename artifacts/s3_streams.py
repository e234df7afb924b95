"""Files of a bucket as Python file objects: what Arrow and DuckDB read and write through.

One read is one request, however long it is; short ones are served from what was fetched ahead. What lies at the end of
a file is fetched together: a Parquet file tells there what it holds.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from obstore import WritableFile

_AHEAD_BYTES = 64 << 10


class Reader(io.RawIOBase):
    """`fetch(start, end)` gives the bytes between. Not thread-safe."""

    def __init__(self, size: int, fetch: Callable[[int, int], bytes]) -> None:
        self.size = size
        self._fetch = fetch
        self._at = self._start = 0
        self._ahead = b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        data = self._next(min(len(view), self.size - self._at))
        view[:len(data)] = data
        self._at += len(data)
        return len(data)

    def _next(self, count: int) -> bytes:
        if count <= 0:
            return b""
        skip = self._at - self._start
        if not (skip >= 0 and skip + count <= len(self._ahead)):
            if count >= _AHEAD_BYTES:
                return self._fetch(self._at, self._at + count)
            self._start = min(self._at, max(0, self.size - _AHEAD_BYTES))
            self._ahead = self._fetch(self._start, min(self.size, self._start + _AHEAD_BYTES))
            skip = self._at - self._start
        return self._ahead[skip:skip + count]


class Writer(io.RawIOBase):
    """Passes on to an upload in parts; who opened the upload ends it."""

    def __init__(self, upload: WritableFile) -> None:
        self._upload = upload

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return self._upload.write(bytes(data))
