"""EpisodeHead: the first fold, of constant size. Used by the sink, the verify consumer and the scheduler.

It is fed admitted events only; `schemas.admission` decides which those are.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from schemas.admission import Claim, admit
from schemas.codec import decode_payload
from schemas.envelope import Event
from schemas.events import (
    EpisodeFinished,
    EpisodeResumed,
    EpisodeStarted,
    Payload,
    ToolCalled,
    ToolReturned,
    TurnGenerated,
)
from schemas.idset import IdSet


class EpisodeHead(msgspec.Struct):
    """Where an episode stands. Mutable on purpose: one per open episode, folded in place."""

    episode_id: str
    claim: Claim = Claim()
    started: EpisodeStarted | None = None
    attempt: int = 1
    turn: int = -1
    segment: int = 0
    version_min: int | None = None
    version_max: int | None = None
    workspace: str | None = None
    open_calls: dict[str, ToolCalled] = {}
    finished: EpisodeFinished | None = None

    def apply(self, payload: Payload) -> None:
        match payload:
            case EpisodeStarted():
                self.started, self.attempt = payload, payload.attempt
            case EpisodeResumed():
                self.attempt = payload.attempt
                if payload.restart:
                    self._restart()
            case TurnGenerated():
                self.turn, self.segment = payload.turn, payload.segment
                self._see_versions(payload)
            case ToolCalled():
                self.open_calls[payload.call_id] = payload
            case ToolReturned():
                self.open_calls.pop(payload.call_id, None)
                self.workspace = payload.workspace or self.workspace
            case EpisodeFinished():
                self.finished = payload

    def _restart(self) -> None:
        self.turn, self.segment, self.workspace = -1, 0, None
        self.version_min = self.version_max = None
        self.open_calls = {}

    def _see_versions(self, turn: TurnGenerated) -> None:
        versions = [version for version, _ in turn.versions]
        if versions:
            low, high = min(versions), max(versions)
            self.version_min = low if self.version_min is None else min(low, self.version_min)
            self.version_max = high if self.version_max is None else max(high, self.version_max)


class Seen(NamedTuple):
    """What one record did to its episode. `payload` is None when fenced or of an unknown type."""

    head: EpisodeHead
    admitted: bool
    reason: str
    payload: Payload | None
    open_call: ToolCalled | None = None
    """For a tool.returned: the call that it closes."""


class Heads:
    """All heads a reader holds. Of a finished one a digest of its id is kept, so late writers stay fenced."""

    def __init__(self) -> None:
        self.open: dict[str, EpisodeHead] = {}
        self.closed = IdSet()

    def see(self, event: Event) -> Seen:
        """Admit `event`, fold it, and say what happened. Raises SchemaError after the claim has advanced:
        admission reads headers alone, so a bad payload still takes its place in the sequence."""
        held = self.open.get(event.subject)
        if held is None and event.subject in self.closed:
            return Seen(EpisodeHead(event.subject, Claim(finished=True)), False, "after_finish", None)
        head = held or EpisodeHead(event.subject)
        verdict = admit(head.claim, event)
        if not verdict.admitted:
            return Seen(head, False, verdict.reason, None)
        head.claim = verdict.claim
        self.open[event.subject] = head
        if verdict.claim.finished:
            del self.open[event.subject]
            self.closed.add(event.subject)
        payload = decode_payload(event)
        call = head.open_calls.get(payload.call_id) if isinstance(payload, ToolReturned) else None
        if payload is not None:
            head.apply(payload)
        return Seen(head, True, "", payload, call)
