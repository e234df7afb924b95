"""The lease of maintenance: one owner at a time for what moves or removes files, in `maintenance.json` of the lake.

It says who and until when, is changed by compare-and-set alone, and is renewed while the work goes on. A holder that
died is followed when its time is over; one that was paused finds out by `check`, which comes before each step that
changes anything. Sinks need no lease for their own small compactions: each of those moves the table's compaction
counter in its own commit, so of two that meet one fails and changes nothing, and a vacuum leaves young files alone.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

import msgspec

from artifacts.folder import Folder
from schemas.errors import LakeError
from schemas.ids import new_id, wall_us

FILE = "maintenance.json"
TERM_S = 30.0
_LOOK_S = 0.1


class Held(msgspec.Struct, frozen=True):
    owner: str = ""
    task: str = ""
    until: int = 0

    def over(self, term_s: float) -> bool:
        """Nobody's, or out of time. A time that no holder could have written comes from a clock that was wrong."""
        left_s = (self.until - wall_us()) / 1e6
        return not self.owner or left_s <= 0 or left_s > 2 * term_s


class Lease:
    """Held by this process until `check` says otherwise."""

    def __init__(self, folder: Folder, owner: str, task: str, term_s: float) -> None:
        self._folder, self._owner, self._task, self._term_s = folder, owner, task, term_s
        self._data: bytes | None = None
        self._renewed = 0.0
        self._lock = threading.Lock()

    def take(self, expected: bytes | None) -> bool:
        now = time.monotonic()
        data = msgspec.json.encode(Held(self._owner, self._task, wall_us() + int(1e6 * self._term_s)))
        if not self._folder.replace(FILE, data, expected):
            return False
        self._data, self._renewed = data, now
        return True

    def check(self) -> None:
        """Raises LakeError if another owner has it: then this process must change nothing more."""
        with self._lock:
            if time.monotonic() - self._renewed > self._term_s / 3:
                self._renew()
            if self._data is None:
                raise LakeError("another process took over the maintenance of the lake", where=self._folder.url,
                                hint="this one was paused or cut off for too long; it changed nothing since")

    def keep(self, done: threading.Event) -> None:
        """Renew until done."""
        while not done.wait(self._term_s / 3):
            with self._lock:
                self._renew()

    def give_back(self) -> None:
        with self._lock:
            if self._data is not None:
                with suppress(OSError):  # Then it ends by itself.
                    self._let_go(self._data)
                self._data = None

    def _let_go(self, data: bytes) -> None:
        try:
            self._folder.replace(FILE, b"{}", data)
        except OSError:
            if time.monotonic() - self._renewed > self._term_s / 2:
                raise
            self._folder.remove(FILE)  # The disk is full, and nobody else may have taken the lease yet.

    def _renew(self) -> None:
        if self._data is None:
            return
        try:
            if not self.take(self._data):
                held, data = read(self._folder)  # The answer to an earlier renewal may have been lost.
                self._data = data if held.owner == self._owner else None
        except OSError:
            if time.monotonic() - self._renewed > self._term_s:
                self._data = None


def read(folder: Folder) -> tuple[Held, bytes | None]:
    try:
        data = folder.read(FILE)
    except FileNotFoundError:
        return Held(), None
    try:
        return msgspec.json.decode(data, type=Held), data
    except msgspec.MsgspecError:
        return Held(), data


@contextmanager
def maintenance(folder: Folder, task: str, wait_s: float = 0.0, term_s: float = TERM_S) -> Iterator[Lease]:
    """The lease for a task. Raises LakeError if somebody else still has it after `wait_s`."""
    lease = Lease(folder, f"{socket.gethostname()}/{os.getpid()}/{new_id()}", task, term_s)
    try:
        _acquire(lease, folder, wait_s, term_s)
    except OSError as wrong:
        raise LakeError(f"lake cannot be written ({wrong.strerror})", where=folder.url,
                        hint="is there free space, and may it be written? nothing was changed") from None
    done = threading.Event()
    keeper = threading.Thread(target=lease.keep, args=(done,), name="lease", daemon=True)
    keeper.start()
    try:
        yield lease
    finally:
        done.set()
        keeper.join()
        lease.give_back()


def _acquire(lease: Lease, folder: Folder, wait_s: float, term_s: float) -> None:
    began = unchanged = time.monotonic()
    seen: bytes | None = None
    while True:
        held, data = read(folder)
        now = time.monotonic()
        if data != seen:
            seen, unchanged = data, now
        if (held.over(term_s) or now - unchanged > term_s) and lease.take(data):
            return
        if now - began >= wait_s:
            host, _, rest = held.owner.partition("/")
            until = datetime.fromtimestamp(held.until / 1e6, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
            raise LakeError("another process maintains the lake", where=folder.url,
                            value=f"{held.task} by process {rest.partition('/')[0]} on {host}, at least until {until}",
                            hint=f"wait for it with --wait; if it died, its lease ends {int(term_s)} s after its last "
                                 "sign of life")
        time.sleep(_LOOK_S)
