"""The producer: owns request partitions, takes over what was unfinished in them, runs episodes side by side."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from artifacts.store import ArtifactStore
from eventlog.log import EventLog
from eventlog.member import static_member
from producers.shift import GROUP, Done, Shift
from sandboxes.sandbox import Backend
from schemas.settings import Settings

if TYPE_CHECKING:
    from lake.lake import Lake


class Producer:
    """`on_finished` is called with each episode that this producer finished, in the thread of `run`. With a `lake` of
    the log, starting costs as much as is open; without one, as much as ever was."""

    def __init__(self, log: EventLog, artifacts: ArtifactStore, backend: Backend, settings: Settings, *,
                 on_finished: Callable[[Done], None] | None = None, lake: Lake | None = None) -> None:
        self._lake = lake
        self._log, self._artifacts, self._backend, self._settings = log, artifacts, backend, settings
        self._on_finished = on_finished or (lambda _: None)

    def run(self, stop: threading.Event, until_idle: bool = False) -> None:
        """As a service until `stop`; or until every episode requested so far is finished, by whomever.

        What was unfinished at the end stays in the log: the next producer goes on with it. Raises LogError.
        """
        with static_member(Path(self._settings.home), GROUP) as member:
            asyncio.run(self._work(member, stop, until_idle))

    async def _work(self, member: str, stop: threading.Event, until_idle: bool) -> None:
        shift = Shift(self._log, self._artifacts, self._backend, self._settings, member, self._on_finished,
                      self._lake)
        await shift.work(stop, until_idle)
