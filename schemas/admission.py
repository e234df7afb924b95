"""Admission: the one rule by which every reader, on any backend, agrees which events of an episode count.

`episode.started` and `episode.resumed` are claims. An event is admitted if its sequence is the head's plus one and
it is a claim or comes from the owner; an admitted claim makes its source the owner; nothing is admitted after an
admitted `episode.finished`. Reads headers alone, never payloads. All else is kept and marked fenced with a reason.
Claims and finishes are known by name, whatever their version: a reader must judge alike what a newer writer wrote.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from schemas.envelope import Event, split_type

_CLAIMS = frozenset({"episode.started", "episode.resumed"})
_FINISH = "episode.finished"


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


@lru_cache(maxsize=1024)
def is_claim(wire: str) -> bool:
    """Whether an event of this type, in any version, claims its episode."""
    name, version = split_type(wire)
    return version > 0 and name in _CLAIMS


@lru_cache(maxsize=1024)
def is_finish(wire: str) -> bool:
    name, version = split_type(wire)
    return version > 0 and name == _FINISH


def admit(claim: Claim, event: Event) -> Verdict:
    """Pure: the state after `event`, whether it counts, and if not, why."""
    reason = _refusal(claim, event)
    if reason:
        return Verdict(claim, False, reason)
    owner = event.source if is_claim(event.type) else claim.owner
    return Verdict(Claim(event.sequence, owner, is_finish(event.type)), True, "")


def _refusal(claim: Claim, event: Event) -> str:
    if claim.finished:
        return "after_finish"
    if event.sequence <= claim.sequence:
        return "duplicate_sequence"
    if event.sequence > claim.sequence + 1:
        return "gap"
    if is_claim(event.type):
        return ""
    if not claim.owner:
        return "unclaimed"
    return "" if event.source == claim.owner else "not_owner"
