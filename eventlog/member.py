"""A static member id for each process of a consumer group: the lowest slot of the home that no living process holds.

The slot is a file lock, which a killed process gives up, so whoever is started in its place is the same member and
has its partitions at once. Two that run together have different slots and share the work.
"""

from __future__ import annotations

import fcntl
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import IO

from schemas.errors import UnavailableError


@contextmanager
def static_member(home: Path, group: str) -> Iterator[str]:
    """Hold the id while the context is open. Raises UnavailableError where the home cannot be written."""
    try:
        slot, lock = _take(home / "members", group)
    except OSError as wrong:
        raise UnavailableError(f"home cannot be written ({wrong.strerror})", where=str(wrong.filename or home),
                               hint="choose a writable --home") from None
    with lock:
        yield f"{group}-{socket.gethostname()}-{slot}"


def _take(folder: Path, group: str) -> tuple[int, IO[str]]:
    folder.mkdir(parents=True, exist_ok=True)
    for slot in count():
        lock = (folder / f"{group}-{slot}").open("a")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return slot, lock
        except OSError as held:
            lock.close()
            if not isinstance(held, BlockingIOError):
                raise
    raise AssertionError("unreachable")
