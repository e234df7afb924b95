"""Producers that start beside a lake: they read what is open and the tail, and judge as if they had read it all."""

from __future__ import annotations

import signal
import threading
from typing import Any

import pytest

from consumers.sink import Sink
from eventlog.log import EventLog, Subscription
from lake import open_lake
from lake.lake import Lake
from producers.ownership import Ownership
from producers.producer import Producer
from producers.restoring import restore, unfinished
from producers.resume import read_pasts
from schemas.codec import make_event
from schemas.envelope import Record
from schemas.events import EpisodeFinished, TurnGenerated
from schemas.ids import now_us
from schemas.topics import REQUESTS, TRAINING, TRAJECTORIES
from tasks.tools import heldout_tasks, training_tasks
from tests.consumers.episodes import turn
from tests.producers.test_takeover import child
from tests.producers.world import World

TOPICS = [TRAJECTORIES, TRAINING, REQUESTS]


class Counting:
    """A log that counts the records it hands out, by topic."""

    def __init__(self, inner: EventLog) -> None:
        self._inner = inner
        self.read: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def subscribe(self, *arguments: Any, **options: Any) -> Subscription:
        return _Counted(self, self._inner.subscribe(*arguments, **options))


class _Counted:
    def __init__(self, log: Counting, inner: Subscription) -> None:
        self._log, self._inner = log, inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def poll(self, timeout_s: float = 0.1, max_records: int = 5000) -> list[Record]:
        records = self._inner.poll(timeout_s, max_records)
        for record in records:
            self._log.read[record.position.topic] = self._log.read.get(record.position.topic, 0) + 1
        return records


def sink(world: World) -> Lake:
    lake = open_lake(world.settings, world.artifacts)
    Sink(world.log, lake, world.artifacts, world.settings).run(threading.Event(), until_idle=True)
    return lake


def ownership_by(world: World, lake: Lake | None) -> Ownership:
    """As a starting producer knows it, with the tail that is left."""
    ownership = Ownership("test", lambda _: None)
    start = restore(lake, world.log, TOPICS, ownership, lambda _: None)
    for record in world.records():
        position = record.position
        if start == "earliest" or (isinstance(start, dict) and position.offset >= start[position[:2]]):
            ownership.see(record)
    return ownership


def test_it_reads_the_tail_and_knows_the_rest(world: World) -> None:
    world.request(training_tasks(0, 0, 8), "scripted:reference")
    done = world.produce()
    lake = sink(world)
    late = world.request(training_tasks(0, 1, 2), "scripted:reference")
    log, finished = Counting(world.log), []
    Producer(log, world.artifacts, world.backend, world.settings, lake=lake, on_finished=finished.append).run(
        threading.Event(), until_idle=True)
    assert {one.request.episode_id for one in finished} == {request.episode_id for request in late}
    written = sum(len(world.events(request.episode_id)) for request in late)
    assert log.read == {TRAJECTORIES: written, REQUESTS: 2 + 2}  # By its group and by the reader of all requests.
    assert len(done) == 8


@pytest.mark.parametrize("sunk", ["nothing", "before the kill", "all"])
def test_a_take_over_is_the_same_with_any_lake(world: World, sunk: str) -> None:
    world.backend  # noqa: B018
    chains = [task for task in heldout_tasks() if task.hidden["family"] == "chain"][:2]
    world.request(training_tasks(0, 0, 3), "scripted:reference")
    world.produce()
    lake = open_lake(world.settings, world.artifacts) if sunk == "nothing" else sink(world)
    requests = world.request(chains, "scripted:reference")
    with child(world, "producer:returned@5") as process:
        assert process.wait(timeout=60) == -signal.SIGKILL
    if sunk == "all":
        lake = sink(world)
    plain = ownership_by(world, None)
    found = ownership_by(world, lake)
    assert (found.open, found.finished) == (plain.open, plain.finished)
    assert found.open
    assert set(found.open) <= {request.episode_id for request in requests}
    assert read_pasts(world.log, found.open, lake) == read_pasts(world.log, plain.open)
    assert lake.positions() == {} or unfinished(lake, lake.positions(), found) <= set(found.open)
    Producer(world.log, world.artifacts, world.backend, world.settings, lake=lake).run(
        threading.Event(), until_idle=True)
    for request in requests:
        turns = [payload.turn for payload in world.payloads(request.episode_id) if isinstance(payload, TurnGenerated)]
        assert turns == [0, 1, 2, 3]


def test_nothing_is_admitted_after_a_finish_that_only_the_lake_told(world: World) -> None:
    request = world.request(training_tasks(0, 0, 1), "scripted:reference")[0]
    world.produce()
    ownership = ownership_by(world, sink(world))
    claim = ownership.claim_of(request.episode_id)
    assert claim.finished
    assert ownership.claim_of("another") != claim


def test_the_lake_of_another_log_is_not_asked(world: World, tmp_path: Any) -> None:
    other = World(tmp_path / "other")
    other.request(training_tasks(0, 0, 2), "scripted:empty")
    other.produce()
    request = world.request(training_tasks(0, 0, 1), "scripted:reference")[0]
    Producer(world.log, world.artifacts, world.backend, world.settings, lake=sink(other)).run(
        threading.Event(), until_idle=True)
    other.close()
    assert world.transcript(request.episode_id).finished is not None


def test_an_episode_whose_past_cannot_be_read_is_given_up_and_holds_nothing_up(world: World) -> None:
    world.backend  # noqa: B018
    chain = next(task for task in heldout_tasks() if task.hidden["family"] == "chain")
    request = world.request([chain], "scripted:reference")[0]
    with child(world, "producer:returned@2") as process:
        assert process.wait(timeout=60) == -signal.SIGKILL
    last = world.events(request.episode_id)[-1]
    broken = make_event(turn(), subject=request.episode_id, source=last.source, time_us=now_us(),
                        sequence=last.sequence + 1)._replace(data=b"\xc1")
    world.log.append(TRAJECTORIES, [broken]).result()
    (finished,) = world.produce()
    assert isinstance(finished, EpisodeFinished)
    assert (finished.termination, finished.failure_kind) == ("infra_failure", "history_unreadable")
