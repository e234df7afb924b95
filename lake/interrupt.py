"""Ctrl-C ends a running query at once.

Python calls its own signal handlers in the main thread only, which is inside DuckDB then and does not always look
up before the query ends. The signal's number is written to a socket meanwhile, and a thread passes it on.
"""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb


@contextmanager
def interruptible(cursor: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Where Ctrl-C means KeyboardInterrupt; whoever gave it another meaning, or waits in an event loop, keeps that."""
    if (threading.current_thread() is not threading.main_thread()
            or signal.getsignal(signal.SIGINT) is not signal.default_int_handler):
        yield
        return
    heard, told = socket.socketpair()
    told.setblocking(False)
    before = signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)

    def listen() -> None:
        while number := heard.recv(1):
            if number[0] == signal.SIGINT:
                cursor.interrupt()

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    try:
        if before != -1:  # An event loop's.
            signal.set_wakeup_fd(before)
        yield
    finally:
        signal.set_wakeup_fd(before)
        told.close()
        listener.join()
        heard.close()
