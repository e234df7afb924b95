"""Streams a command's output: counts are true, memory is bounded, the head and the tail are kept."""

from __future__ import annotations

import os

READ_BYTES = 1 << 16
KILL_BYTES = 64 << 20
"""A command that writes more than this on both streams together is killed (`output_limit`)."""


class Stream:
    """One output stream. Keeps all up to `keep_bytes`; beyond, the first half and the last half of it."""

    def __init__(self, descriptor: int, keep_bytes: int) -> None:
        self.descriptor = descriptor
        self.count = 0
        self.ended = False
        self._half = keep_bytes // 2
        self._head = b""
        self._tail = bytearray()

    def add(self, data: bytes) -> None:
        if not self.count and len(data) <= self._half:
            self._head = data
            self.count = len(data)
            return
        self.count += len(data)
        room = self._half - len(self._head)
        if room > 0 and not self._tail:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 4 * self._half + READ_BYTES:
            del self._tail[:-self._half or None]

    def drain(self, most: int = KILL_BYTES) -> None:
        """Take what is there now, without waiting; `ended` when all writers are gone."""
        while self.count <= most and not self.ended:
            try:
                data = os.read(self.descriptor, READ_BYTES)
            except BlockingIOError:
                return
            if not data:
                self.ended = True
                return
            self.add(data)
            if len(data) < READ_BYTES:
                return

    @property
    def truncated(self) -> bool:
        return self.count > 2 * self._half

    @property
    def kept(self) -> bytes:
        if self.truncated:
            return self._head + bytes(self._tail[len(self._tail) - self._half:])
        return self._head + bytes(self._tail)
