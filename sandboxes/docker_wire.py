"""A connection to a process in a container: what is sent is its stdin, both output streams come back in frames."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import time
from collections.abc import Callable, Mapping

Sink = Callable[[bytes], None]
OUT, ERR = 1, 2
_HEADER = struct.Struct(">BxxxI")
_READ_BYTES = 1 << 16


class Wire:
    """Owns its socket. `ended` when the process and all that held its streams are gone."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._link.setblocking(False)
        self._head = b""
        """The part of a header that has come."""
        self._frame, self._left = 0, 0
        """Which stream the frame that is coming belongs to, and how much of it is still to come."""
        self.ended = False

    def converse(self, data: bytes, sinks: Mapping[int, Sink], deadline: float, stop: Callable[[], str | None]) -> str:
        """Send `data` and take what comes until `stop` says why, the stream ends (``), or it is late (`timed_out`)."""
        todo = memoryview(data)
        poll = select.poll()
        poll.register(self._link, select.POLLIN | (select.POLLOUT if todo else 0))
        while not self.ended:
            left = deadline - time.monotonic()
            if left <= 0:
                return "timed_out"
            happened = next((what for _, what in poll.poll(left * 1000)), 0)
            if todo and happened & select.POLLOUT:
                todo = self._send(todo)
                if not todo:
                    poll.modify(self._link, select.POLLIN)
            if happened & ~select.POLLOUT:
                self._receive(sinks)
            if (why := stop()) is not None:
                return why
        return ""

    def _send(self, todo: memoryview) -> memoryview:
        try:
            return todo[self._link.send(todo):]
        except BlockingIOError:
            return todo
        except OSError:  # nobody reads any more: the end of the stream follows
            return todo[len(todo):]

    def _receive(self, sinks: Mapping[int, Sink]) -> None:
        try:
            data = self._link.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self.ended = not data
        while data:
            if not self._left:
                data = self._begin(data)
                continue
            part, data = data[:self._left], data[self._left:]
            self._left -= len(part)
            if sink := sinks.get(self._frame):
                sink(part)

    def _begin(self, data: bytes) -> bytes:
        """Take a header, or what there is of one."""
        head = self._head + data[:_HEADER.size - len(self._head)]
        data = data[len(head) - len(self._head):]
        if len(head) < _HEADER.size:
            self._head = head
            return b""
        self._head = b""
        self._frame, self._left = _HEADER.unpack(head)
        return data

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_RDWR)
        self._link.close()
