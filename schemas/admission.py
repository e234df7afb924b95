"""Admission: the one rule by which every reader, on any backend, agrees which events of an episode count.

`episode.started` and `episode.resumed` are claims. An event is admitted if its sequence is the head's plus one and
it is a claim or comes from the owner; an admitted claim makes its source the owner; nothing is admitted after an
admitted `episode.finished`. Reads headers alone, never payloads. All else is kept and marked fenced with a reason.
"""

from __future__ import annotations

from typing import NamedTuple

from schemas.envelope import Event, wire_type

CLAIMS = frozenset({wire_type("episode.started"), wire_type("episode.resumed")})
FINISHED = wire_type("episode.finished")


class Claim(NamedTuple):
    """What admission remembers of one episode: constant size."""

    sequence: int = -1
    owner: str = ""
    finished: bool = False


class Verdict(NamedTuple):
    claim: Claim
    admitted: bool
    reason: str


UNCLAIMED = Claim()


def admit(claim: Claim, event: Event) -> Verdict:
    """Pure: the state after `event`, whether it counts, and if not, why."""
    reason = _refusal(claim, event)
    if reason:
        return Verdict(claim, False, reason)
    owner = event.source if event.type in CLAIMS else claim.owner
    return Verdict(Claim(event.sequence, owner, event.type == FINISHED), True, "")


def _refusal(claim: Claim, event: Event) -> str:
    if claim.finished:
        return "after_finish"
    if event.sequence <= claim.sequence:
        return "duplicate_sequence"
    if event.sequence > claim.sequence + 1:
        return "gap"
    if event.type not in CLAIMS and not claim.owner:
        return "unclaimed"
    if event.type not in CLAIMS and event.source != claim.owner:
        return "not_owner"
    return ""
