"""Moves the write-ahead log into the file: one process at a time, never inside a writer's commit.

The write-ahead log starts over, in pages that are warm and on blocks that are there, only when all of it was moved and
nobody wrote meanwhile. So what was written during a checkpoint is moved by the writer, between two commits.

The lease is the advisory lock beside the file, so it ends with its holder. Without a checkpoint nothing is lost; the
write-ahead log only grows.
"""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import apsw

from eventlog.sqlite_file import PAGE_BYTES, connect, locked
from schemas.errors import HeadraceError

PASSIVE_PAGES = (8 << 20) // PAGE_BYTES
TRUNCATE_PAGES = (128 << 20) // PAGE_BYTES
"""So far only if readers or a stream of writes kept the log from starting over: then writers wait for it."""
_PAUSE_S = 0.05
_BUSY_S = 0.25
_BUSY_PAUSE_S = 5.0


class Checkpointer:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._pages = self._asked = 0
        self._rest = False
        self._wanted = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="log-checkpoint", daemon=True)
        self._thread.start()

    def saw(self, pages: int) -> None:
        """After a commit: so many pages wait in the write-ahead log."""
        self._pages = pages
        if pages >= PASSIVE_PAGES:
            self._wanted.set()

    def finish(self, connection: apsw.Connection) -> None:
        """By the writer, outside of transactions: move what a checkpoint left."""
        if self._rest:
            self._rest = False
            with contextlib.suppress(apsw.Error):  # The next one moves it.
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def close(self) -> None:
        self._stop.set()
        self._wanted.set()
        self._thread.join()

    def _run(self) -> None:
        connection: apsw.Connection | None = None
        while self._wanted.wait() and not self._stop.is_set():
            self._wanted.clear()
            pause_s = _PAUSE_S
            try:
                connection = connection or connect(self._path, busy_s=_BUSY_S)
                self._checkpoint(connection)
            except (apsw.Error, HeadraceError, OSError):
                # Tried again after a later commit; a lasting failure shows in the appends themselves.
                pause_s = _BUSY_PAUSE_S
            self._stop.wait(pause_s)
        if connection is not None:
            connection.close()

    def _checkpoint(self, connection: apsw.Connection) -> None:
        with locked(self._path, wait=False) as mine:
            if mine:
                far = self._pages >= TRUNCATE_PAGES
                pages, _ = connection.wal_checkpoint(
                    mode=apsw.SQLITE_CHECKPOINT_TRUNCATE if far else apsw.SQLITE_CHECKPOINT_PASSIVE)
                # Once for each stretch: where a reader holds on to old pages, asking again would not help.
                if pages < self._asked or pages >= self._asked + PASSIVE_PAGES:
                    self._asked, self._rest = pages, True
