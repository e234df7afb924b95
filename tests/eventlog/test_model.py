"""Both logs against a model: whatever writers do, every reader admits the same events, from wherever it resumes."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from eventlog.log import EventLog
from schemas.admission import UNCLAIMED, Claim, admit
from schemas.envelope import Event, Record, wire_type
from schemas.ids import new_id
from schemas.topics import TRAJECTORIES, partition_for
from tests.eventlog.tools import TURN, poll_until

STARTED, RESUMED, FINISHED = (wire_type(f"episode.{name}") for name in ("started", "resumed", "finished"))
EPISODES, WRITERS = 5, 3
ACTIONS = ("claim", "turn", "turn", "turn", "zombie", "gap", "repeat_id", "repeat_sequence", "finish")


class Model:
    """Two or three writers race for some episodes. Says what each will write and, in plain words, what must count."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._run = new_id()
        self.written: list[Event] = []
        self.admitted: dict[str, list[str]] = defaultdict(list)
        self._next: dict[str, int] = defaultdict(int)
        self._owner: dict[str, str] = {}
        self._over: set[str] = set()

    def step(self, action: str) -> Event:
        episode = f"{self._run}-{self._random.randrange(EPISODES)}"
        writer = f"writer-{self._random.randrange(WRITERS)}"
        owner, following = self._owner.get(episode, writer), self._next[episode]
        mine = [event for event in self.written if event.subject == episode]
        made = {
            "claim": lambda: (RESUMED if mine else STARTED, writer, following),
            "turn": lambda: (TURN, owner, following),
            "zombie": lambda: (TURN, writer, following),
            "gap": lambda: (TURN, owner, following + self._random.randrange(1, 4)),
            "repeat_id": lambda: (TURN, owner, following),
            "repeat_sequence": lambda: (self._random.choice([TURN, STARTED]), writer, max(0, following - 1)),
            "finish": lambda: (FINISHED, owner, following)}[action]()
        event = Event(new_id(), made[1], made[0], episode, made[2], 1_700_000_000_000_000, b"x")
        if action == "repeat_id" and mine:
            event = self._random.choice(mine)
        self.written.append(event)
        self._judge(event)
        return event

    def _judge(self, event: Event) -> None:
        episode, claims = event.subject, event.type in (STARTED, RESUMED)
        if episode in self._over or event.sequence != self._next[episode]:
            return
        if not claims and event.source != self._owner.get(episode):
            return
        self._next[episode] += 1
        if claims:
            self._owner[episode] = event.source
        if event.type == FINISHED:
            self._over.add(episode)
        self.admitted[episode].append(event.id)


class Fold:
    """A reader's admission, with a point to which it can go back: heads and positions, as the lake keeps them."""

    def __init__(self) -> None:
        self.claims: dict[str, Claim] = {}
        self.admitted: dict[str, list[str]] = defaultdict(list)

    def see(self, records: list[Record]) -> None:
        for record in records:
            event = record.event
            assert event is not None
            verdict = admit(self.claims.get(event.subject, UNCLAIMED), event)
            self.claims[event.subject] = verdict.claim
            if verdict.admitted:
                self.admitted[event.subject].append(event.id)

    def copy(self) -> Fold:
        other = Fold()
        other.claims = dict(self.claims)
        other.admitted.update({episode: list(ids) for episode, ids in self.admitted.items()})
        return other


def read_to(reader, ends: dict, fold: Fold) -> None:
    while any(reader.position(part) < end for part, end in ends.items()):
        fold.see(poll_until(reader, lambda found: len(found) > 0))


def by_half(log: EventLog, start: dict, ends: dict, group: str) -> Fold:
    """Reads a part, seeks back as after a failed flush, commits, and resumes as the next process of the group."""
    fold = Fold()
    reader = log.subscribe([TRAJECTORIES], group, start=start, member="m")
    poll_until(reader, lambda _: len(reader.assignment()) == len(ends))
    for part, begin in start.items():
        reader.seek(part, begin)
    kept = fold.copy()
    fold.see(reader.poll(0.2, max_records=7))
    for part in start:  # What was read is dropped with its heads.
        reader.seek(part, start[part])
    fold = kept
    fold.see(reader.poll(0.2, max_records=11))
    reader.commit({part: reader.position(part) for part in start})
    reader.close()
    successor = log.subscribe([TRAJECTORIES], group, member="m")
    fold.see(poll_until(successor, lambda _: len(successor.assignment()) == len(ends)))
    read_to(successor, ends, fold)
    successor.close()
    return fold


@pytest.mark.parametrize("batches", [1, 4])
def test_every_reader_admits_what_the_model_admits(log: EventLog, batches: int) -> None:
    @settings(max_examples=4, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))
    @given(st.lists(st.sampled_from(ACTIONS), min_size=40, max_size=80), st.integers(0, 2**32))
    def check(actions: list[str], seed: int) -> None:
        model, start = Model(seed), log.ends([TRAJECTORIES])
        events = [model.step(action) for action in actions]
        futures = [log.append(TRAJECTORIES, events[at:at + batches]) for at in range(0, len(events), batches)]
        for future, at in zip(futures, range(0, len(events), batches), strict=True):
            positions = future.result(30)
            assert [position.partition for position in positions] == [
                partition_for(event.subject, len(start)) for event in events[at:at + batches]]
        ends = log.ends([TRAJECTORIES])
        plain, fold = log.subscribe([TRAJECTORIES], start=start), Fold()
        read_to(plain, ends, fold)
        plain.close()
        assert fold.admitted == model.admitted
        assert by_half(log, start, ends, new_id()).admitted == model.admitted

    check()
