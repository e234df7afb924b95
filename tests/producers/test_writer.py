"""The writer of an episode when the log is full: its event loop goes on, and the order of its events holds."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

import pytest

from eventlog import open_log
from eventlog.log import EventLog
from producers.writer import Writer
from schemas.admission import UNCLAIMED
from schemas.envelope import Event, Position
from schemas.events import ContextCompacted
from schemas.settings import Settings
from schemas.topics import TRAJECTORIES
from tests.eventlog.tools import read


class FullLog:
    """A log that holds who appends, until `room`: as a real one does whose buffer is full."""

    def __init__(self, log: EventLog) -> None:
        self._log, self.room = log, threading.Event()

    def append(self, topic: str, events: Sequence[Event]) -> Future[list[Position]]:
        assert self.room.wait(30)
        return self._log.append(topic, events)


def compacted(number: int) -> ContextCompacted:
    return ContextCompacted(from_segment=number, to_segment=number + 1, method="m", kept=0, dropped_tokens=0, files=[])


def test_full_log_holds_the_episode_and_not_the_loop(tmp_path: Path) -> None:
    log = open_log(Settings(home=str(tmp_path)))
    full = FullLog(log)

    async def work() -> float:
        writer = Writer(full, None, "e", "mine", UNCLAIMED)  # type: ignore[arg-type]
        first = asyncio.ensure_future(writer.append(compacted(0), compacted(1)))
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        second = asyncio.ensure_future(writer.append(compacted(2)))
        begun, worst = time.monotonic(), 0.0
        while time.monotonic() - begun < 0.3:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            worst = max(worst, time.monotonic() - before)
        assert not second.done()
        full.room.set()
        await second
        return worst

    assert asyncio.run(work()) < 0.25
    assert [record.event.sequence for record in read(log.subscribe([TRAJECTORIES]), 3)] == [0, 1, 2]
    log.close()
