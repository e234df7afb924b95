"""A static member id per process: the lowest slot of the home that no living process holds.

A process that was killed gives its slot up with its file lock, so the one started in its place is the same member of
the group and gets its partitions at once. Two that run together have different slots and share the work.
"""

from __future__ import annotations

import fcntl
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from schemas.errors import UnavailableError

SLOTS = 64


@contextmanager
def static_member(home: Path, group: str) -> Iterator[str]:
    """Hold a slot; gives the member id."""
    folder = home / "members"
    folder.mkdir(parents=True, exist_ok=True)
    for slot in range(SLOTS):
        with (folder / f"{group}-{slot}").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            yield f"{group}-{socket.gethostname()}-{slot}"
            return
    raise UnavailableError(f"{SLOTS} processes of this kind run in this home", where=str(folder), value=group)
