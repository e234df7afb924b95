"""What the log says about one run, kept up to date by reading its tail: the demo's only knowledge of progress."""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import TYPE_CHECKING

from schemas.admission import UNCLAIMED, Claim, admit, is_finish
from schemas.codec import readable_payload
from schemas.envelope import Record
from schemas.events import (
    BatchSealed,
    EpisodeFinished,
    EpisodeRequested,
    ScoreRecorded,
    StepCompleted,
    WeightsPublished,
)
from schemas.topics import REQUESTS, SCORES, TRAINING, TRAJECTORIES

if TYPE_CHECKING:
    from eventlog.log import EventLog, TopicPartition

_TOPICS = (REQUESTS, TRAJECTORIES, SCORES, TRAINING)


class Watch:
    """Thread-safe to read. `changed` is notified after every batch of records."""

    def __init__(self, log: EventLog, run_id: str) -> None:
        self._log, self._run_id = log, run_id
        self.requested: dict[str, EpisodeRequested] = {}
        self.finished: dict[str, EpisodeFinished] = {}
        self.rewards: dict[str, float | None] = {}
        self.sealed: dict[int, BatchSealed] = {}
        self.steps: dict[int, StepCompleted] = {}
        self.weights: dict[int, WeightsPublished] = {}
        self.positions: dict[TopicPartition, int] = {}
        self.changed = threading.Condition()
        self.failure: BaseException | None = None
        self._claims: dict[str, Claim] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="watch", daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def settled(self, episode_ids: Collection[str]) -> int:
        """How many of these have a score, or ended with nothing to score."""
        return sum(
            episode in self.rewards or (episode in self.finished and self.finished[episode].submission is None)
            for episode in episode_ids
        )

    def reward_mean(self, episode_ids: Collection[str]) -> float | None:
        known = [reward for episode in episode_ids if (reward := self.rewards.get(episode)) is not None]
        return sum(known) / len(known) if known else None

    def _follow(self) -> None:
        try:
            subscription = self._log.subscribe(_TOPICS)
            try:
                while not self._stop.is_set():
                    records = subscription.poll(timeout_s=0.1)
                    if records:
                        with self.changed:
                            self._see_all(records)
                            self.changed.notify_all()
            finally:
                subscription.close()
        except BaseException as error:
            with self.changed:
                self.failure = error
                self.changed.notify_all()

    def _see_all(self, records: list[Record]) -> None:
        for record in records:
            if record.event is not None:
                self._see(record)
            topic, partition, offset = record.position
            self.positions[topic, partition] = offset + 1

    def _see(self, record: Record) -> None:
        event = record.event
        assert event is not None
        if record.position.topic == TRAJECTORIES:
            verdict = admit(self._claims.get(event.subject, UNCLAIMED), event)
            self._claims[event.subject] = verdict.claim
            if not verdict.admitted or not is_finish(event.type):
                return
        match payload := readable_payload(event):
            case EpisodeRequested() if payload.run_id == self._run_id:
                self.requested.setdefault(payload.episode_id, payload)
            case EpisodeFinished():
                self.finished[event.subject] = payload
            case ScoreRecorded() if payload.cause == "live":
                self.rewards.setdefault(payload.episode_id, payload.reward)
            case BatchSealed() if payload.run_id == self._run_id:
                self.sealed.setdefault(payload.step, payload)
            case StepCompleted() if payload.run_id == self._run_id:
                self.steps.setdefault(payload.step, payload)
            case WeightsPublished() if payload.run_id == self._run_id:
                self.weights.setdefault(payload.version, payload)
