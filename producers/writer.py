"""The sequenced writer of one episode: next sequence, its source, durable before it returns.

A claim returns only when it was read back as admitted. `Lost` means that another writer owns the episode, or that it
is finished: the episode must stop at once, and nothing that it would still write is admitted anyway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from eventlog.log import EventLog
from schemas.admission import Claim
from schemas.codec import make_event
from schemas.envelope import Event
from schemas.events import Payload
from schemas.ids import now_us
from schemas.topics import TRAJECTORIES


class Lost(Exception):
    """Another writer owns the episode. Says why the claim was not admitted."""


class Admissions(Protocol):
    """Who says whether a claim was admitted: `producers.ownership`."""

    def expect(self, event: Event) -> asyncio.Future[str]:
        """Becomes the reason of refusal once the event was read back, empty if it was admitted."""
        ...


class Writer:
    def __init__(self, log: EventLog, admissions: Admissions, episode_id: str, source: str, claim: Claim) -> None:
        self._log, self._admissions = log, admissions
        self.episode_id, self.source = episode_id, source
        self.sequence = claim.sequence
        """Of the newest event written."""
        self._turn = asyncio.Lock()

    async def claim(self, payload: Payload) -> None:
        event = self._event(payload, self.sequence + 1)
        admitted = self._admissions.expect(event)
        await self._append([event])
        if refusal := await admitted:
            raise Lost(refusal)

    async def append(self, *payloads: Payload) -> None:
        await self._append([self._event(payload, self.sequence + 1 + index) for index, payload in enumerate(payloads)])

    async def _append(self, events: Sequence[Event]) -> None:
        """An episode that is cancelled here withdraws nothing: what it writes next must find no gap before it."""
        self.sequence = events[-1].sequence
        handed = asyncio.ensure_future(self._hand_over(events))
        handed.add_done_callback(lambda over: over.cancelled() or over.exception())  # Somebody has to look at it.
        await asyncio.shield(handed)

    async def _hand_over(self, events: Sequence[Event]) -> None:
        async with self._turn:  # First come, first served.
            appended = await asyncio.to_thread(self._log.append, TRAJECTORIES, events)
        await asyncio.wrap_future(appended)

    def _event(self, payload: Payload, sequence: int) -> Event:
        return make_event(payload, subject=self.episode_id, source=self.source, sequence=sequence, time_us=now_us())
