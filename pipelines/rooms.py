"""The rooms that assets, checks and the sensor read: opened once for each process and settings, closed at its end."""

from __future__ import annotations

import atexit
import threading
from typing import TYPE_CHECKING, NamedTuple

from schemas.settings import Settings

if TYPE_CHECKING:
    from artifacts.store import ArtifactStore
    from eventlog.log import EventLog
    from lake.lake import Lake


class Rooms(NamedTuple):
    settings: Settings
    log: EventLog
    artifacts: ArtifactStore
    lake: Lake


_opened: dict[Settings, Rooms] = {}
_lock = threading.Lock()


def open_rooms(settings: Settings) -> Rooms:
    from artifacts import open_store
    from eventlog import open_log
    from lake import open_lake

    with _lock:
        if settings not in _opened:
            artifacts = open_store(settings)
            _opened[settings] = Rooms(settings, open_log(settings), artifacts, open_lake(settings, artifacts))
        return _opened[settings]


def close_rooms() -> None:
    """For the end of a process, and for tests that open many homes."""
    with _lock:
        while _opened:
            _opened.popitem()[1].log.close()


atexit.register(close_rooms)
