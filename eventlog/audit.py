"""The audit of a log: every record of every partition, judged as its readers judge it and by what its writers promise.

A *fault* is what no part of Headrace does or allows: lost offsets, damaged or unreadable records, payloads that violate
their schema, two events of one id, an owner whose sequence has a gap. A *note* is what may be so in a sound log: fenced
events of zombies, types of newer releases, marks of transactions. Memory holds one partition's open episodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from eventlog.inspection import Hole, Inspector, PartitionRow, Scanned
from eventlog.repeats import Repeats
from schemas.admission import UNCLAIMED, Claim, Verdict, admit
from schemas.codec import decode_payload
from schemas.envelope import Event, Position, Record
from schemas.errors import LogError, SchemaError
from schemas.events import TurnGenerated
from schemas.idset import IdSet
from schemas.topics import TRAJECTORIES, partition_for

SHOWN = 5
"""Examples kept of each kind."""


class Finding(NamedTuple):
    kind: str
    fault: bool
    position: Position | None
    episode: str
    detail: str


class Counted(NamedTuple):
    """What a partition holds."""

    row: PartitionRow
    events: int
    episodes: int
    fenced: int


class Audit:
    """What `run` found: counts of each kind, the first few of each, and what every partition holds."""

    def __init__(self, inspector: Inspector) -> None:
        self._inspector = inspector
        self.counts: Counter[tuple[str, bool]] = Counter()
        self.examples: list[Finding] = []
        self.partitions: list[Counted] = []

    @property
    def faults(self) -> int:
        return sum(count for (_, fault), count in self.counts.items() if fault)

    def run(self) -> Iterator[int]:
        """Yields the number of records after every thousand or so."""
        for detail in self._inspector.faults():
            self._found("store", True, None, "", detail)
        topics = {row.topic: row.partitions for row in self._inspector.topics()}
        with Repeats() as repeats:
            for row in self._inspector.partitions():
                judge = _Partition(row, topics[row.topic])
                yield from self._partition(row, judge, repeats)
                self.partitions.append(judge.counted())
            for repeat in repeats.found():
                again = repeat.same and repeat.position.topic != TRAJECTORIES and not self._inspector.exactly_once
                first = f"first at {repeat.first.topic}-{repeat.first.partition}, offset {repeat.first.offset}"
                if again:
                    self._found("fact written again", False, repeat.position, "", f"{first}; readers keep that one")
                else:
                    self._found("duplicate id", True, repeat.position, "",
                                f"{first}{'' if repeat.same else '; another event'}")

    def _partition(self, row: PartitionRow, judge: _Partition, repeats: Repeats) -> Iterator[int]:
        count = 0
        try:
            for item in self._inspector.scan(row):
                count += 1
                if count % 1000 == 0:
                    yield 1000
                for finding in judge.see(item):
                    self._found(*finding)
                if isinstance(item, Scanned) and item.record.event is not None:
                    repeats.see(item.record.position, item.record.event)
        except LogError as wrong:
            position = Position(row.topic, row.partition, judge.next_offset)
            self._found("unreadable from here on", True, position, "", str(wrong))
        yield count % 1000

    def _found(self, kind: str, fault: bool, position: Position | None, episode: str, detail: str) -> None:
        self.counts[kind, fault] += 1
        if self.counts[kind, fault] <= SHOWN:
            self.examples.append(Finding(kind, fault, position, episode, detail))


class _Partition:
    """Judges the records of one partition in order."""

    def __init__(self, row: PartitionRow, partitions: int) -> None:
        self._row, self._count = row, partitions
        self._claims: dict[str, Claim] = {}
        self._finished = IdSet()
        self._trimmed = False
        self._broken: set[str] = set()
        self._events = self._fenced = self._episodes = 0
        self.next_offset = row.start

    def counted(self) -> Counted:
        return Counted(self._row, self._events, self._episodes, self._fenced)

    def see(self, item: Scanned | Hole) -> Iterator[Finding]:
        if isinstance(item, Hole):
            yield from self._hole(item)
            return
        record, damage = item
        self._events += 1
        self.next_offset = record.position.offset + 1
        event = record.event
        if event is None:
            assert record.raw is not None
            yield Finding("unreadable record", True, record.position, "", record.raw.reason)
            return
        if damage:
            yield Finding("damaged record", True, record.position, event.subject, damage)
        yield from self._place(record, event)
        yield from self._payload(record, event)
        if self._row.topic == TRAJECTORIES:
            yield from self._admission(record, event)

    def _hole(self, hole: Hole) -> Iterator[Finding]:
        self._trimmed |= hole.kind == "trimmed"
        self.next_offset = hole.last + 1
        position = Position(self._row.topic, self._row.partition, hole.first)
        count = hole.last - hole.first + 1
        yield Finding("offsets missing" if hole.kind == "missing" else f"no record: {hole.kind}",
                      hole.kind == "missing", position, "", f"{count} to offset {hole.last}: {hole.detail}")

    def _place(self, record: Record, event: Event) -> Iterator[Finding]:
        due = partition_for(event.subject, self._count)
        if due != record.position.partition:
            yield Finding("wrong partition", True, record.position, event.subject,
                          f"belongs to {self._row.topic}-{due}: its readers there do not see it")

    def _payload(self, record: Record, event: Event) -> Iterator[Finding]:
        try:
            payload = decode_payload(event)
            if isinstance(payload, TurnGenerated):
                _check_finite(payload, event)
        except SchemaError as wrong:
            yield Finding("schema violation", True, record.position, event.subject, str(wrong))
            return
        if payload is None:
            fault = not event.version
            detail = event.type if fault else f"{event.type}: this release carries it and reads it not"
            yield Finding("foreign type" if fault else "unknown type", fault, record.position, event.subject, detail)
        elif self._row.topic != payload.TOPIC:
            yield Finding("wrong topic", True, record.position, event.subject,
                          f"{event.type} belongs to {payload.TOPIC}")

    def _admission(self, record: Record, event: Event) -> Iterator[Finding]:
        episode = event.subject
        if episode in self._finished:
            yield self._fence(record, event, "after_finish")
            return
        claim = self._claims.get(episode)
        if claim is None:
            self._episodes += 1
            claim = UNCLAIMED
            if self._trimmed and event.sequence:
                claim = Claim(event.sequence - 1, event.source)  # Its beginning was trimmed, the claim with it.
        verdict = admit(claim, event)
        self._claims[episode] = verdict.claim
        if verdict.claim.finished:
            self._finished.add(episode)
            del self._claims[episode]
            self._broken.discard(episode)
        if not verdict.admitted:
            yield self._refused(record, event, claim, verdict)

    def _refused(self, record: Record, event: Event, claim: Claim, verdict: Verdict) -> Finding:
        wrong = _wrong(claim, event, verdict.reason)
        if not wrong or event.subject in self._broken:
            return self._fence(record, event, verdict.reason, claim.owner)
        self._fenced += 1
        if verdict.reason != "duplicate_sequence":  # All that follows in the episode is fenced because of this one.
            self._broken.add(event.subject)
        return Finding("broken sequence", True, record.position, event.subject, wrong)

    def _fence(self, record: Record, event: Event, reason: str, owner: str = "") -> Finding:
        self._fenced += 1
        whose = f" while {owner} owns the episode" if owner not in ("", event.source) else ""
        return Finding(f"fenced: {reason}", False, record.position, event.subject,
                       f"{event.name}, sequence {event.sequence}, from {event.source}{whose}")


def _wrong(claim: Claim, event: Event, reason: str) -> str:
    """What an admitted writer itself did wrong: others are fenced, an owner's sequence has no faults."""
    if not claim.owner:
        what = f"begins at sequence {event.sequence}" if reason == "gap" else "was never claimed"
        return f"the episode {what}: its {event.name} counts for no reader"
    if event.source != claim.owner:
        return ""
    if reason == "gap":
        return f"the owner wrote {event.sequence} after {claim.sequence}: what is between is not in the log"
    if reason == "duplicate_sequence":
        how = "twice" if event.sequence == claim.sequence else f"again after {claim.sequence}"
        return f"the owner wrote sequence {event.sequence} {how}"
    return ""


def _check_finite(turn: TurnGenerated, event: Event) -> None:
    import numpy as np

    if turn.logprobs is not None and not np.isfinite(np.frombuffer(turn.logprobs, "<f4")).all():
        raise SchemaError("logprob is not finite", where=f"event {event.id}, turn {turn.turn}")
