"""The static member id of a producer in its consumer group.

It is the lowest slot of the home that no living producer holds. The slot is a file lock, which a killed process gives
up, so whoever is started in its place is the same member and has its partitions at once.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from schemas.errors import UnavailableError


@contextmanager
def member_of(group: str, home: Path, host: str) -> Iterator[str]:
    """Hold the id while the context is open."""
    folder = home / "members"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for slot in count():
            with (folder / f"{group}-{slot}").open("a") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue
                yield f"{group}-{host}-{slot}"
                return
    except PermissionError as wrong:
        raise UnavailableError("home cannot be written", where=str(wrong.filename or folder),
                               hint="choose a writable --home") from None
