"""Who owns which episode: the fold of `schemas.admission` over the trajectories, kept by every producer.

It reads headers alone. Of an open episode it keeps the claim and where its first event lies; of a finished one a
digest of its id. A writer learns here that its claim was admitted, and at once when another's was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from schemas.admission import UNCLAIMED, Claim, admit, is_claim
from schemas.envelope import Event, Position, Record
from schemas.idset import IdSet


class Open(NamedTuple):
    claim: Claim
    first: Position


class Ownership:
    """Used from one event loop. `on_lost` is called with an episode that another source took from `source`."""

    def __init__(self, source: str, on_lost: Callable[[str], None]) -> None:
        self._source, self._on_lost = source, on_lost
        self._expected: dict[str, asyncio.Future[str]] = {}
        self.open: dict[str, Open] = {}
        self.finished = IdSet()

    def claim_of(self, episode_id: str) -> Claim:
        held = self.open.get(episode_id)
        if held is not None:
            return held.claim
        return Claim(finished=True) if episode_id in self.finished else UNCLAIMED

    def expect(self, event: Event) -> asyncio.Future[str]:
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._expected[event.id] = future
        future.add_done_callback(lambda _: self._expected.pop(event.id, None))
        return future

    def see(self, record: Record) -> None:
        """Fold one record of the trajectories; what has no readable headers counts for nobody."""
        event = record.event
        if event is None:
            return
        episode, before = event.subject, self.claim_of(event.subject)
        verdict = admit(before, event)
        if verdict.admitted:
            self._keep(episode, verdict.claim, record.position)
            if is_claim(event.type) and before.owner == self._source != event.source:
                self._on_lost(episode)
        waiting = self._expected.get(event.id)
        if waiting is not None and not waiting.done():
            waiting.set_result(verdict.reason)

    def _keep(self, episode: str, claim: Claim, position: Position) -> None:
        if claim.finished:
            self.open.pop(episode, None)
            self.finished.add(episode)
            return
        held = self.open.get(episode)
        self.open[episode] = Open(claim, held.first if held else position)
