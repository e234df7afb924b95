"""Taking over unfinished episodes: read their past from the log, and stand where their last writer stood.

Turns in the log are never generated again. The workspace comes back by its digest, calls without a result are made
again as the next attempt, or closed as `outcome_unknown` where that is not safe. Processes never outlive the call
that started them, so nothing else was lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from eventlog.log import EventLog, TopicPartition
from producers import ownership
from producers.dialects import Call, Malformed
from producers.episode import HOST, Episode, Open, answer_of, call_id_of
from schemas.admission import is_claim
from schemas.enums import ToolStatus
from schemas.envelope import Event
from schemas.errors import SchemaError
from schemas.events import EpisodeResumed, ToolReturned
from schemas.ids import now_us
from schemas.topics import TRAJECTORIES
from schemas.transcript import Transcript, Turn

if TYPE_CHECKING:
    from lake.lake import Lake

CRASHES = 20
"""Takeovers of one episode after which it counts as what brings its producers down."""


class Past(msgspec.Struct):
    """What the log holds of an open episode. `used_s`: time between events, without the gaps before takeovers."""

    transcript: Transcript
    used_s: float = 0.0
    last_us: int = 0

    def see(self, event: Event) -> None:
        resumes = len(self.transcript.resumes)
        try:
            if not self.transcript.see(event):
                return
        except SchemaError as wrong:
            self.transcript.violations.append(str(wrong))
        if not is_claim(event.type):
            self.used_s += (event.time_us - self.last_us) / 1e6
        elif len(self.transcript.resumes) > resumes and self.transcript.resumes[-1].restart:
            self.used_s = 0.0
        self.last_us = event.time_us


def read_pasts(log: EventLog, opened: Mapping[str, ownership.Open], lake: Lake | None = None) -> dict[str, Past]:
    """The past of open episodes: from the archive as far as there is one, then one pass over the log's tail; without
    an archive, one pass from where the first of them began."""
    from lake.standing import admitted_events, archive

    pasts = {episode: Past(Transcript(episode)) for episode in opened}
    if not pasts:
        return {}
    at, ends = archive(lake, log, [TRAJECTORIES]), log.ends([TRAJECTORIES])
    if lake is not None and at:
        begun = {episode: (held.first.partition, held.first.offset) for episode, held in opened.items()}
        for _, event in admitted_events(lake, at, begun):
            pasts[event.subject].see(event)
    start = dict(ends)
    for held in opened.values():
        partition = held.first.topic, held.first.partition
        start[partition] = min(start[partition], max(held.first.offset, at.get(partition, 0)))
    for event in _read(log, start, ends):
        if event.subject in pasts:
            pasts[event.subject].see(event)
    return pasts


def _read(log: EventLog, start: dict[TopicPartition, int], ends: dict[TopicPartition, int]) -> Iterator[Event]:
    subscription = log.subscribe([TRAJECTORIES], start=start)
    try:
        while True:
            for record in subscription.poll(0.1):
                if record.event is not None:
                    yield record.event
            assigned = subscription.assignment()
            if all(part in assigned and subscription.position(part) >= end for part, end in ends.items()):
                return
    finally:
        subscription.close()


def resume(episode: Episode, past: Past) -> EpisodeResumed:
    """Bring `episode` to where its log ends; the claim by which this process takes it over."""
    transcript = past.transcript
    before = transcript.started.tokenizer if transcript.started else None
    restart = before != episode.policy.tokenizer_digest
    episode.attempt = transcript.attempt + restart
    if not restart:
        episode.used_s = past.used_s
        _replay(episode, transcript)
    return EpisodeResumed(
        attempt=episode.attempt, restart=restart, reason="tokenizer_changed" if restart else "producer_lost",
        from_sequence=transcript.claim.sequence, host=HOST, at=now_us())


def _replay(episode: Episode, transcript: Transcript) -> None:
    for turn in transcript.turns:
        episode.state.replay(turn.generated)
        settled, episode.unsettled = _split(episode, turn)
        for call, returned in settled:
            episode.state.settle(call.tool, call.raw, returned, answer_of(call))


def _split(episode: Episode, turn: Turn) -> tuple[list[tuple[Call | Malformed, ToolReturned]], list[Open]]:
    """The calls of a turn that have their final result, and those that have not."""
    settled: list[tuple[Call | Malformed, ToolReturned]] = []
    unsettled: list[Open] = []
    for index, call in enumerate(episode.read(turn.generated)):
        call_id = call_id_of(episode.attempt, turn.generated.turn, index)
        made = [one for one in turn.calls if one.called.call_id == call_id]
        final = made[-1].returned if made else None
        if final is not None and final.status != ToolStatus.SANDBOX_BROKEN:
            settled.append((call, final))
        else:
            unsettled.append(Open(turn.generated, index, call, made[-1].called.attempt if made else 0))
    return settled, unsettled
