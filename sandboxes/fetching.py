"""Fetches a snapshot's contents in the order in which they are written; from a store that is far, some ahead."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from sandboxes.manifest import BLOCK_BYTES, BLOCKS, WHOLE_BYTES, Entry, Get

FAR_S = 0.003
"""A content that takes longer than this comes over a network: the next ones are asked for meanwhile."""
_THREADS = 16
_AHEAD_BYTES = 32 << 20


class Fetching:
    """`get` is asked for the contents of `entries` in their order. Holds `_AHEAD_BYTES` and one content at most."""

    def __init__(self, get: Get, entries: Iterable[Entry]) -> None:
        self._get, self._wanted = get, _contents(entries)
        self._ahead: deque[tuple[str, int, Future[bytes]]] = deque()
        self._ahead_bytes = 0
        self._next: tuple[str, int] | None = None
        self._pool: ThreadPoolExecutor | None = None

    def get(self, name: str) -> bytes:
        if self._pool is not None:
            return self._fetched(self._pool, name)
        for wanted, _ in self._wanted:  # what comes after this one is left
            if wanted == name:
                break
        started = time.monotonic()
        data = self._get(name)
        if time.monotonic() - started > FAR_S:
            self._pool = ThreadPoolExecutor(_THREADS)
            self._next = next(self._wanted, None)
        return data

    def _fetched(self, pool: ThreadPoolExecutor, name: str) -> bytes:
        while self._next is not None and len(self._ahead) < _THREADS and (
                not self._ahead or self._ahead_bytes + self._next[1] <= _AHEAD_BYTES):
            wanted, size = self._next
            self._ahead.append((wanted, size, pool.submit(self._get, wanted)))
            self._ahead_bytes += size
            self._next = next(self._wanted, None)
        if not self._ahead or self._ahead[0][0] != name:
            return self._get(name)
        _, size, data = self._ahead.popleft()
        self._ahead_bytes -= size
        return data.result()

    def __enter__(self) -> Fetching:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


def _contents(entries: Iterable[Entry]) -> Iterator[tuple[str, int]]:
    """Names and sizes of what is asked for: one that follows itself within a file is asked for once."""
    for entry in entries:
        before = ""
        for name in entry.parts:
            if name != before:
                before = name
                yield name, min(entry.size, BLOCK_BYTES if entry.kind == BLOCKS else WHOLE_BYTES)
