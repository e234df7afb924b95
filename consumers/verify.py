"""The verify consumer: every admitted `episode.finished` with a submission gets one live score.

Invariants. It keeps no state of its own: after any crash it takes what was finished from the lake, if there is one, and
reads its partitions from there on, else from their beginning; folds admission as every reader does; and leaves out what
already has a live score. A score's event id is repeatable, so one that is
written twice counts once. A score is durable before its episode counts as done; the group's offset stays below the
lowest episode that is not. As a service it shares partitions with others of its group; until idle it reads all of
them, so that on return everything that was finished when it was called is scored, by whomever.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from consumers.archived import NO_SCORE, Archived, Job
from eventlog.log import EventLog, Subscription, TopicPartition
from eventlog.member import static_member
from schemas.codec import make_event, readable_payload
from schemas.enums import ScoreStatus
from schemas.envelope import Event, Record, wire_type
from schemas.errors import SchemaError
from schemas.events import EpisodeFinished, ScoreRecorded
from schemas.failpoints import hit
from schemas.head import Heads
from schemas.ids import new_id, now_us
from schemas.idset import IdSet
from schemas.settings import Settings
from schemas.topics import SCORES, TRAJECTORIES
from verifiers.scoring import Request, Scorer

if TYPE_CHECKING:
    from lake.lake import Lake

log = logging.getLogger(__name__)
GROUP = "verify"
ATTEMPTS = 3
"""Tries at a verdict that infrastructure kept from being given, before that is recorded."""
RETRY_WAIT_S = 0.2
COMMIT_INTERVAL_S = 1.0
REPORT_INTERVAL_S = 30.0
_SCORED = wire_type("score.recorded")


class Landed(NamedTuple):
    """A score that is durable in the log, or why it is not."""

    job: Job
    score: ScoreRecorded | None
    error: BaseException | None


class Progress:
    """What was done since the start; written to the log now and then."""

    def __init__(self) -> None:
        self.statuses: Counter[str] = Counter()
        self.latencies_s: deque[float] = deque(maxlen=4096)
        """From the end of an episode to its durable score, the newest ones."""
        self._reported = time.monotonic()

    def add(self, job: Job, score: ScoreRecorded) -> None:
        self.statuses[score.status] += 1
        self.latencies_s.append(max(0.0, (now_us() - job.finished_at) / 1e6))

    @property
    def scored(self) -> int:
        return self.statuses.total()

    def report(self, waiting: int, now: bool = False) -> None:
        if not self.scored or (not now and time.monotonic() - self._reported < REPORT_INTERVAL_S):
            return
        self._reported = time.monotonic()
        middle = sorted(self.latencies_s)[len(self.latencies_s) // 2]
        log.info("scored %d episodes (%s), %d waiting, median latency %.3f s", self.scored,
                 ", ".join(f"{name} {count}" for name, count in sorted(self.statuses.items())), waiting, middle)


class VerifyConsumer:
    """Scores finished episodes. `on_scored` is called for each durable score, in the thread of `run`. With a `lake` of
    the log, starting costs as much as is unscored; without one, as much as ever was."""

    def __init__(self, log: EventLog, score: Scorer, settings: Settings, *, lake: Lake | None = None,
                 on_scored: Callable[[ScoreRecorded], None] | None = None) -> None:
        self._log, self._ask, self._settings, self._lake = log, score, settings, lake
        self._on_scored = on_scored
        self._source = f"verify/{new_id()}"
        self.progress = Progress()

    def run(self, stop: threading.Event, until_idle: bool = False) -> None:
        """As a service until `stop`; or until all that is finished now is scored."""
        with contextlib.ExitStack() as stack:
            member = None if until_idle else stack.enter_context(static_member(Path(self._settings.home), GROUP))
            archived = Archived(self._log, self._lake)
            scores = stack.enter_context(contextlib.closing(self._log.subscribe(
                [SCORES], start=archived.start(SCORES))))
            pool = ThreadPoolExecutor(self._settings.verify_workers, thread_name_prefix="verify")
            stack.callback(pool.shutdown, wait=True, cancel_futures=True)
            loop = _Loop(self._log, scores, archived, lambda job: pool.submit(self._score, job, stop, loop.landed))
            trajectories = stack.enter_context(contextlib.closing(self._log.subscribe(
                [TRAJECTORIES], GROUP if member else None, archived.start(TRAJECTORIES), member=member,
                on_assign=loop.assigned, on_revoke=loop.revoked)))
            self._follow(loop, trajectories, stop, until_idle)
        self.progress.report(loop.waiting, now=True)

    def _follow(self, loop: _Loop, trajectories: Subscription, stop: threading.Event, until_idle: bool) -> None:
        ends = self._log.ends([TRAJECTORIES]) if until_idle else {}
        committed = time.monotonic()
        while not stop.is_set():
            loop.take(trajectories)
            for landed in loop.drain():
                self._count(landed)
            if not until_idle and time.monotonic() - committed > COMMIT_INTERVAL_S:
                committed = time.monotonic()
                trajectories.commit(loop.safe_offsets(trajectories))
            self.progress.report(loop.waiting)
            if until_idle and not loop.waiting and _reached(trajectories, ends):
                return

    def _count(self, landed: Landed) -> None:
        if landed.error is not None:
            raise landed.error
        assert landed.score is not None
        self.progress.add(landed.job, landed.score)
        if self._on_scored:
            self._on_scored(landed.score)

    def _score(self, job: Job, stop: threading.Event, landed: queue.SimpleQueue[Landed]) -> None:
        """In a worker: judge, append; what came of it lands in the queue once it is durable."""
        try:
            score = self._judge(job, stop)
            hit("verify:judged")
            event = make_event(score, subject=job.episode_id, source=self._source, time_us=score.finished_at,
                               event_id=score.score_id)
            appended = self._log.append(SCORES, [event])
        except BaseException as wrong:
            landed.put(Landed(job, None, wrong))
            return
        appended.add_done_callback(lambda done: landed.put(Landed(job, score, done.exception())))

    def _judge(self, job: Job, stop: threading.Event) -> ScoreRecorded:
        for attempt in range(1, ATTEMPTS + 1):
            score = self._ask(Request(submission=job.submission, episode_id=job.episode_id, run_id=job.run_id,
                                      deadline_s=self._settings.verify_deadline_s))
            if score.status != ScoreStatus.INFRA_FAILURE or attempt == ATTEMPTS:
                break
            log.warning("episode %s: verdict failed for infrastructure, attempt %d", job.episode_id, attempt)
            if stop.wait(RETRY_WAIT_S * attempt):
                raise _Stopped
        return score


class _Stopped(Exception):
    """The consumer was asked to stop in the middle of a retry: nothing is recorded, the next one tries again."""


class _Loop:
    """What one run of the consumer knows: heads per partition, who has a score, what is being scored."""

    def __init__(self, log: EventLog, scores: Subscription, archived: Archived,
                 start: Callable[[Job], Future[None]]) -> None:
        self._log, self._scores, self._archived, self._start = log, scores, archived, start
        self.landed: queue.SimpleQueue[Landed] = queue.SimpleQueue()
        self._heads: dict[TopicPartition, Heads] = {}
        self._scored = IdSet()
        """Of episodes that were scored before their finish is read here: not of all."""
        self._waiting: dict[str, Job] = {}
        self._fresh: set[TopicPartition] = set()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self._fresh |= partitions

    def revoked(self, partitions: frozenset[TopicPartition]) -> None:
        """Forget them. A score that is still under way is appended all the same, under the id any other gives it."""
        for partition in partitions:
            self._heads.pop(partition, None)
        self._fresh -= partitions
        self._waiting = {episode: job for episode, job in self._waiting.items() if job.partition not in partitions}

    def take(self, trajectories: Subscription, timeout_s: float = 0.05) -> None:
        """Read what came, and start to score what is finished."""
        for record in trajectories.poll(0.0 if self._fresh else timeout_s):
            if job := self._job(record):
                self._begin_job(job)
        if self._fresh:
            self._begin(trajectories)

    def _begin_job(self, job: Job) -> None:
        if job.episode_id not in self._waiting and job.episode_id not in self._scored:
            self._waiting[job.episode_id] = job
            self._start(job)

    def _begin(self, trajectories: Subscription) -> None:
        """New partitions begin where the archive ends, after every score that stands in the log now is known."""
        fresh = self._fresh & trajectories.assignment()
        found = self._archived.read(fresh)
        for episode in found.scored_early:
            self._scored.add(episode)
        self._read_scores()
        for partition in fresh:
            self._heads[partition] = found.heads[partition]
            trajectories.seek(partition, found.at.get(partition, 0))
        for job in found.jobs:
            self._begin_job(job)
        self._fresh = set()

    def _read_scores(self) -> None:
        ends = self._log.ends([SCORES])
        while not _reached(self._scores, ends):
            for record in self._scores.poll(0.1):
                if record.event is not None and record.event.type == _SCORED:
                    self._note_score(record.event)

    def _note_score(self, event: Event) -> None:
        """What no verifier gave (the submission was not to be had) is none: who has it, and be it later, scores it."""
        payload = readable_payload(event)
        if isinstance(payload, ScoreRecorded) and payload.cause == "live" and payload.verifier:
            self._scored.add(payload.episode_id)

    def _job(self, record: Record) -> Job | None:
        """The job that this record makes, if it is an admitted finish with something to score. Records of a partition
        that has not begun yet are left: they come again."""
        partition = (record.position.topic, record.position.partition)
        if record.event is None or partition not in self._heads:
            return None
        try:
            seen = self._heads[partition].see(record.event)
        except SchemaError as wrong:
            log.warning("%s-%d at %d is skipped: %s", *record.position, wrong)
            return None
        finished = seen.payload
        if not isinstance(finished, EpisodeFinished) or finished.submission is None or finished.termination in NO_SCORE:
            return None
        run_id = seen.head.started.run_id if seen.head.started else ""
        return Job(partition, record.position.offset, record.event.subject, run_id, finished.submission.digest,
                   finished.at or record.event.time_us)

    def drain(self) -> list[Landed]:
        """What landed since the last time."""
        found = []
        with contextlib.suppress(queue.Empty):
            while True:
                landed = self.landed.get_nowait()
                if isinstance(landed.error, _Stopped):
                    continue
                if landed.error is None:
                    hit("verify:durable")
                    self._waiting.pop(landed.job.episode_id, None)
                found.append(landed)
        return found

    def safe_offsets(self, trajectories: Subscription) -> dict[TopicPartition, int]:
        """For each partition the offset below which every finished episode is scored."""
        offsets = {partition: trajectories.position(partition) for partition in trajectories.assignment()}
        for job in self._waiting.values():
            if job.partition in offsets:
                offsets[job.partition] = min(offsets[job.partition], job.offset)
        return offsets


def _reached(subscription: Subscription, ends: dict[TopicPartition, int]) -> bool:
    """Whether a reader of all partitions has read all that stood before `ends`."""
    assigned = subscription.assignment()
    return all(partition in assigned and subscription.position(partition) >= end for partition, end in ends.items())
