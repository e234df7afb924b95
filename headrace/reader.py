"""What Python users hold: SQL over the lake, and one episode as a transcript."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.rooms import Rooms
from schemas.errors import NotFoundError
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
        """All turns and calls of one episode. Raises NotFoundError."""
        from lake.history import history
        from schemas.transcript import transcript_of

        events = history(self._rooms.lake, [episode_id]).get(episode_id)
        if not events:
            raise NotFoundError(
                "no such episode in the lake", value=episode_id, hint="`headrace episodes ls` lists them"
            )
        return transcript_of(episode_id, events)


def open_reader(home: str | None = None) -> Reader:
    return Reader(Rooms(resolve({"home": home}).settings).require())
