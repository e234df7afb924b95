"""A verify consumer that starts beside a lake: it scores what one without a lake would, and reads only the tail."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import pytest

from artifacts.store import DirectoryStore
from consumers.sink import Sink
from consumers.verify import VerifyConsumer
from eventlog import open_log
from eventlog.log import EventLog
from lake import open_lake
from lake.lake import Lake
from schemas.codec import make_event
from schemas.envelope import Event
from schemas.events import ScoreRecorded
from schemas.ids import digest, now_us, stable_id
from schemas.settings import Settings
from schemas.topics import SCORES, TRAJECTORIES
from tests.consumers.episodes import episode, event, finished, turn
from tests.producers.test_restart import Counting
from verifiers.scoring import Request

SUBMISSION = digest(b"submission")


@pytest.fixture
def log(settings: Settings) -> Iterator[EventLog]:
    log = open_log(settings)
    yield log
    log.close()


def write(log: EventLog, *streams: Sequence[Event]) -> None:
    for stream in streams:
        log.append(TRAJECTORIES, stream).result()


def sink(log: EventLog, settings: Settings, artifacts: DirectoryStore) -> Lake:
    lake = open_lake(settings, artifacts)
    Sink(log, lake, artifacts, settings).run(threading.Event(), until_idle=True)
    return lake


def judge(request: Request) -> ScoreRecorded:
    return ScoreRecorded(
        score_id=stable_id("score", request.episode_id), episode_id=request.episode_id, submission=request.submission,
        verifier="tools", verifier_digest=digest(b"v"), status="ok", reward=1.0, cause="live", started_at=now_us(),
        finished_at=now_us(), run_id=request.run_id)


def scored(log: EventLog, settings: Settings, lake: Lake | None) -> list[str]:
    """Episodes that a consumer scores from start to idle."""
    found: list[ScoreRecorded] = []
    VerifyConsumer(log, judge, settings, lake=lake, on_scored=found.append).run(threading.Event(), until_idle=True)
    return sorted(score.episode_id for score in found)


def score(log: EventLog, name: str, cause: str = "live") -> None:
    payload = judge(Request(submission=SUBMISSION, episode_id=name, run_id="run-1", deadline_s=1.0))
    log.append(SCORES, [make_event(payload, subject=name, source="other", time_us=now_us())]).result()


@pytest.mark.parametrize("late", [0, 1, 2, 3])
def test_it_scores_the_same_with_a_lake_that_ends_anywhere(
        log: EventLog, settings: Settings, artifacts: DirectoryStore, late: int) -> None:
    """The parts of a history, of which the last `late` are in the log only."""
    def first() -> None:
        write(log, *(episode(f"done-{number}", SUBMISSION) for number in range(8)), episode("open", SUBMISSION)[:2])
        for number in range(6):
            score(log, f"done-{number}")

    def second() -> None:
        score(log, "open")  # Its finish comes later, as where another consumer was faster than the sink.
        write(log, episode("cut", SUBMISSION)[:1], [event("done-7", 3, finished(SUBMISSION))])

    def third() -> None:
        write(log, [event("open", 2, finished(SUBMISSION))], [event("cut", 1, turn(), "zombie")],
              [event("cut", 1, turn()), event("cut", 2, finished(SUBMISSION))], episode("new", SUBMISSION))

    parts = [first, second, third]
    for part in parts[:3 - late]:
        part()
    lake = sink(log, settings, artifacts)
    for part in parts[3 - late:]:
        part()
    assert scored(log, settings, lake) == ["cut", "done-6", "done-7", "new"]
    assert scored(log, settings, lake) == []
    assert scored(log, settings, None) == []


def test_it_reads_of_the_log_what_the_lake_has_not(
        log: EventLog, settings: Settings, artifacts: DirectoryStore) -> None:
    write(log, *(episode(f"done-{number}", SUBMISSION) for number in range(20)))
    assert len(scored(log, settings, None)) == 20
    lake = sink(log, settings, artifacts)
    write(log, episode("late", SUBMISSION))
    counting = Counting(log)
    assert scored(counting, settings, lake) == ["late"]  # type: ignore[arg-type]
    assert counting.read == {TRAJECTORIES: 2 * 3}  # Once before it knows where its partitions begin.


def test_a_lake_that_cannot_be_read_is_only_slower(
        log: EventLog, settings: Settings, artifacts: DirectoryStore) -> None:
    write(log, *(episode(f"done-{number}", SUBMISSION) for number in range(5)))
    lake = sink(log, settings, artifacts)
    for commit in (lake.root / "events" / "_delta_log").iterdir():
        commit.write_bytes(b"{")
    broken = open_lake(settings, artifacts)
    assert len(scored(log, settings, broken)) == 5
