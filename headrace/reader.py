"""What Python users hold: SQL over the lake, and one episode as a transcript."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.rooms import Rooms
from schemas.errors import NotFoundError, UnavailableError
from schemas.settings import resolve

if TYPE_CHECKING:
    import pyarrow as pa

    from schemas.transcript import Transcript


class Reader:
    def __init__(self, rooms: Rooms) -> None:
        self._rooms = rooms

    def sql(self, query: str, as_of: Mapping[str, int] | None = None) -> pa.Table:
        """Read-only DuckDB SQL over one snapshot of all tables. Raises QueryError."""
        return self._rooms.lake.sql(query, as_of=as_of)

    def episode(self, episode_id: str) -> Transcript:
        """All turns and calls of one episode up to this moment. Raises NotFoundError."""
        found = transcript_now(self._rooms, episode_id)
        if found.started is None:
            raise NotFoundError("no such episode", value=episode_id, hint="`headrace episodes ls` lists them")
        return found


def transcript_now(rooms: Rooms, episode_id: str) -> Transcript:
    """The episode out of the lake and the log's tail; out of the lake alone where the log is elsewhere or away."""
    from lake.history import history, history_now
    from schemas.transcript import transcript_of

    try:
        there = rooms.settings.log != "sqlite" or (rooms.home / "log.db").exists()
        events = history_now(rooms.lake, rooms.log, [episode_id]) if there else history(rooms.lake, [episode_id])
    except UnavailableError:
        events = history(rooms.lake, [episode_id])
    return transcript_of(episode_id, events.get(episode_id, []))


def open_reader(home: str | None = None) -> Reader:
    return Reader(Rooms(resolve({"home": home}).settings).require())
