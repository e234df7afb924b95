"""One process that produces, verifies and sinks what was requested."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.rooms import Rooms
    from verifiers.scoring import Scorer


def work(rooms: Rooms, score: Scorer, stop: threading.Event, total: int) -> None:
    """Each stage drains what the one before it made, so the last commit holds everything."""
    from consumers.sink import Sink
    from consumers.verify import VerifyConsumer
    from headrace.progress import counting
    from producers.producer import Producer

    with counting("episodes", total) as advance:
        producer = Producer(rooms.log, rooms.artifacts, rooms.backend, rooms.settings, lake=rooms.lake,
                            on_finished=lambda _: advance(1))
        producer.run(stop, until_idle=True)
    VerifyConsumer(rooms.log, score, rooms.settings, lake=rooms.lake).run(stop, until_idle=True)
    Sink(rooms.log, rooms.lake, rooms.artifacts, rooms.settings).run(stop, until_idle=True)
