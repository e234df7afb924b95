"""The verify consumer: each admitted finish is scored once, whatever is killed or runs beside it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from consumers.archived import Archived
from consumers.sink import Sink
from consumers.verify import Job, Landed, VerifyConsumer, _Loop
from eventlog import open_log
from eventlog.log import EventLog
from lake import open_lake
from schemas.codec import decode_payload, make_event
from schemas.enums import ScoreStatus
from schemas.envelope import Event
from schemas.events import ScoreRecorded
from schemas.failpoints import VARIABLE
from schemas.ids import new_id, now_us
from schemas.topics import SCORES, TRAJECTORIES
from tasks.task import Task
from tests.consumers.episodes import episode, event, finished, started, turn
from tests.verifiers.rig import Rig
from verifiers.registry import get_verifier
from verifiers.scoring import here, score_id_of

TASK = Task(task_id="t", kind="tools", set="s", prompt="p", hidden={"family": "calc", "out": "out.txt", "want": "42"})
REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path / "home")
    yield rig
    rig.close()


@pytest.fixture
def log(rig: Rig) -> Iterator[EventLog]:
    log = open_log(rig.settings)
    yield log
    log.close()


def consumer(rig: Rig, log: EventLog, **more: object) -> VerifyConsumer:
    return VerifyConsumer(log, here(rig.artifacts, rig.backend), rig.settings, **more)  # type: ignore[arg-type]


def drain(rig: Rig, log: EventLog) -> VerifyConsumer:
    made = consumer(rig, log)
    made.run(threading.Event(), until_idle=True)
    return made


def scores(log: EventLog) -> list[ScoreRecorded]:
    """All scores in the log, by episode."""
    reader = log.subscribe([SCORES])
    try:
        found: list[ScoreRecorded] = []
        while records := reader.poll(0.0):
            for record in records:
                assert record.event is not None
                payload = decode_payload(record.event)
                assert isinstance(payload, ScoreRecorded)
                assert (record.event.subject, record.event.id) == (payload.episode_id, payload.score_id)
                found.append(payload)
        return sorted(found, key=lambda score: score.episode_id)
    finally:
        reader.close()


def tidy(rig: Rig) -> None:
    """What killed processes left is removed. Their spawners may take a moment to die after them."""
    root, deadline = Path(rig.settings.home) / "sandboxes", time.monotonic() + 30
    while len([path for path in root.iterdir() if not path.name.startswith(".")]) > 1:
        assert time.monotonic() < deadline, list(root.iterdir())
        rig.backend.reap()


def write(log: EventLog, *streams: Sequence[Event]) -> None:
    for stream in streams:
        log.append(TRAJECTORIES, stream).result()


def right(rig: Rig) -> str:
    return rig.hand_in(TASK, {"out.txt": "42"}, calls=[("done", "ok")])


def test_every_finish_with_a_submission_gets_one_live_score(rig: Rig, log: EventLog) -> None:
    wrong = rig.hand_in(TASK, {"out.txt": "41"})
    write(log, episode("a", right(rig)), episode("b", wrong), episode("c", None, "cancelled"),
          episode("d", None, "infra_failure"), episode("e", right(rig), "infra_failure"),
          episode("f", right(rig), "max_turns"), episode("g", right(rig))[:2])
    assert drain(rig, log).progress.statuses == {"ok": 3}
    assert [(score.episode_id, score.reward) for score in scores(log)] == [("a", 1.0), ("b", 0.0), ("f", 1.0)]
    first = scores(log)[0]
    digest = get_verifier("tools").digest
    assert first.score_id == score_id_of("a", right(rig), digest, "live") and first.cause == "live"
    assert (first.run_id, first.task_id, first.verifier_digest) == ("run-1", "t", digest)


def test_the_same_submission_by_two_episodes_is_scored_for_each(rig: Rig, log: EventLog) -> None:
    write(log, episode("a", right(rig)), episode("b", right(rig)))
    drain(rig, log)
    assert len({score.score_id for score in scores(log)}) == 2
    assert len({score.evidence for score in scores(log)}) == 1


def test_what_is_not_admitted_is_not_scored(rig: Rig, log: EventLog) -> None:
    zombie = [event("a", 0, started()), event("a", 1, turn()), event("a", 2, finished(right(rig)), "zombie"),
              event("a", 5, finished(right(rig)))]
    unclaimed = [event("b", 0, finished(right(rig)))]
    late = [*episode("c", None, "cancelled"), event("c", 3, finished(right(rig)))]
    unreadable = [*episode("d", right(rig))[:2], episode("d", right(rig))[2]._replace(data=b"\xc1")]
    unknown = [event("e", 0, started()), event("e", 1, turn())._replace(type="headrace.other.v9", data=b"?"),
               event("e", 2, finished(right(rig)))]
    write(log, zombie, unclaimed, late, unreadable, unknown)
    drain(rig, log)
    assert [score.episode_id for score in scores(log)] == ["e"]


def test_running_again_scores_only_what_is_new(rig: Rig, log: EventLog) -> None:
    write(log, episode("a", right(rig)))
    drain(rig, log)
    write(log, episode("b", right(rig)))
    assert drain(rig, log).progress.scored == 1
    assert drain(rig, log).progress.scored == 0
    assert [score.episode_id for score in scores(log)] == ["a", "b"]


def test_an_episode_with_a_live_score_of_another_verifier_version_is_left(rig: Rig, log: EventLog) -> None:
    """After an upgrade of the verifier the old episodes keep their score; a replay's score is none of ours."""
    write(log, episode("a", right(rig)), episode("b", right(rig)))
    old = rig.score(right(rig))
    for name, cause in (("a", "live"), ("b", "replay-1")):
        payload = ScoreRecorded(score_id=new_id(), episode_id=name, submission=old.submission, verifier="tools",
                                verifier_digest="sha256:old", status="ok", reward=0.25, cause=cause, started_at=0,
                                finished_at=now_us())
        log.append(SCORES, [make_event(payload, subject=name, source="old", time_us=now_us(),
                                       event_id=payload.score_id)]).result()
    assert drain(rig, log).progress.scored == 1
    assert [(score.episode_id, score.cause) for score in scores(log)].count(("a", "live")) == 1
    assert {(score.episode_id, score.cause) for score in scores(log)} == {
        ("a", "live"), ("b", "replay-1"), ("b", "live")}


def test_what_infrastructure_prevents_is_tried_again_and_then_recorded_without_a_reward(
        rig: Rig, log: EventLog, caplog: pytest.LogCaptureFixture) -> None:
    write(log, episode("a", "sha256:" + "7" * 64))
    drain(rig, log)
    score, = scores(log)
    assert (score.status, score.reward) == (ScoreStatus.INFRA_FAILURE, None)
    assert caplog.text.count("verdict failed for infrastructure") == 2


@pytest.mark.parametrize("archived", [False, True])
def test_a_submission_that_one_home_lacks_is_scored_where_it_is(rig: Rig, log: EventLog, archived: bool) -> None:
    submission = right(rig)
    kept = rig.artifacts.path(submission)
    kept.rename(kept.with_name("elsewhere"))
    write(log, episode("a", submission))
    drain(rig, log)
    lake = open_lake(rig.settings, rig.artifacts) if archived else None
    if lake:
        Sink(log, lake, rig.artifacts, rig.settings).run(threading.Event(), until_idle=True)
    kept.with_name("elsewhere").rename(kept)
    for _ in range(2):
        consumer(rig, log, lake=lake).run(threading.Event(), until_idle=True)
    assert {(score.status, score.reward) for score in scores(log)} == {("infra_failure", None), ("ok", 1.0)}
    assert len(scores(log)) == 2


def test_services_share_the_work_and_leave_nothing(rig: Rig, log: EventLog) -> None:
    names = [f"episode-{index}" for index in range(24)]
    stop, all_scored, seen = threading.Event(), threading.Event(), set[str]()

    def on_scored(score: ScoreRecorded) -> None:
        seen.add(score.episode_id)
        if len(seen) == len(names):
            all_scored.set()

    services = [consumer(rig, log, on_scored=on_scored) for _ in range(2)]
    threads = [threading.Thread(target=service.run, args=(stop,)) for service in services]
    for thread in threads:
        thread.start()
    submission = right(rig)
    write(log, *(episode(name, submission) for name in names))
    assert all_scored.wait(60)
    stop.set()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert [score.episode_id for score in scores(log)] == sorted(names)


def test_offsets_stay_below_what_is_not_scored(rig: Rig, log: EventLog) -> None:
    write(log, episode("a", right(rig)), episode("b", right(rig)), episode("c", right(rig))[:1])
    jobs: list[Job] = []
    loop = _Loop(log, log.subscribe([SCORES]), Archived(log, None),
                 lambda job: jobs.append(job))  # type: ignore[arg-type, func-returns-value]
    reader = log.subscribe([TRAJECTORIES], on_assign=loop.assigned, on_revoke=loop.revoked)
    while len(jobs) < 2:
        loop.take(reader)
    ends = log.ends([TRAJECTORIES])
    while jobs:
        offsets = loop.safe_offsets(reader)
        assert all(offsets[job.partition] <= job.offset for job in jobs) and offsets != ends
        job = jobs.pop()
        loop.landed.put(Landed(job, rig.score(job.submission), None))
        loop.drain()
    assert loop.safe_offsets(reader) == ends and loop.waiting == 0
    reader.close()


CHILD = """
import sys, threading
from artifacts import open_store
from consumers.verify import VerifyConsumer
from eventlog import open_log
from schemas.settings import Settings
from verifiers.judges import Judges

settings = Settings(home=sys.argv[1])
with Judges(settings, open_store(settings), 2) as judges:
    VerifyConsumer(open_log(settings), judges.score, settings).run(threading.Event())
"""


def child(rig: Rig, failpoint: str = "") -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), VARIABLE: failpoint}
    return subprocess.Popen([sys.executable, "-c", CHILD, rig.settings.home], cwd=REPOSITORY, env=environment)


@pytest.mark.parametrize("failpoint", ["verify:judged@3", "verify:durable@3"])
def test_killed_before_and_after_a_score_is_durable(rig: Rig, log: EventLog, failpoint: str) -> None:
    names = [f"episode-{index}" for index in range(6)]
    write(log, *(episode(name, right(rig)) for name in names))
    assert child(rig, failpoint).wait(60) == -signal.SIGKILL
    before = scores(log)
    tidy(rig)
    drain(rig, log)
    assert [score.episode_id for score in scores(log)] == names
    assert [score for score in scores(log) if score in before] == before


def test_kill_at_any_moment_loses_nothing_and_scores_nothing_twice(rig: Rig, log: EventLog) -> None:
    """Killed three times while it scores; the next one goes on. SIGKILL, so nothing is tidied up."""
    names = [f"episode-{index:03}" for index in range(100)]
    submissions = [rig.hand_in(TASK, {"out.txt": str(40 + index)}, calls=[("done", "ok")]) for index in range(4)]
    write(log, *(episode(name, submissions[index % 4]) for index, name in enumerate(names)))
    reader = log.subscribe([SCORES])
    durable = 0
    for target in (1, 7, 19):
        process = child(rig)
        while durable < target:
            durable += len(reader.poll(0.1))
            assert process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.wait()
    reader.close()
    before = scores(log)
    assert len(before) >= 19
    tidy(rig)
    drain(rig, log)
    after = scores(log)
    assert [score.episode_id for score in after] == names
    assert [score for score in after if score in before] == before
    assert [score.reward for score in after] == [float(index % 4 == 2) for index in range(len(names))]
