"""A gate before a server: connections pass while it is open; shut, they are refused and those that stand are cut."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Gate:
    def __init__(self, port: int) -> None:
        self._behind = port
        self._standing: list[socket.socket] = []
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self.port = 0
        self.open()

    def open(self) -> None:
        listener = socket.create_server(("127.0.0.1", self.port), reuse_port=False)
        self.port = listener.getsockname()[1]
        self._listener = listener
        threading.Thread(target=self._take, args=(listener,), daemon=True).start()

    def shut(self) -> None:
        with self._lock:
            listener, self._listener = self._listener, None
            cut, self._standing = self._standing, []
        for connection in [listener, *cut]:
            if connection is not None:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
                connection.close()

    def _take(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                front, _ = listener.accept()
                back = socket.create_connection(("127.0.0.1", self._behind))
                with self._lock:
                    shut = self._listener is not listener
                    self._standing += [front, back]
                if shut:
                    self.shut()
                for one, other in ((front, back), (back, front)):
                    threading.Thread(target=_pass, args=(one, other), daemon=True).start()


def _pass(one: socket.socket, other: socket.socket) -> None:
    with suppress(OSError):
        while data := one.recv(1 << 16):
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)
