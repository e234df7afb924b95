"""A home in which episodes are told by hand: real log, real sink, real lake, real store."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from artifacts import open_store
from consumers.sink import Sink
from eventlog import open_log
from lake import open_lake
from schemas.codec import make_event
from schemas.events import (
    EpisodeFinished,
    EpisodeRequested,
    EpisodeStarted,
    Payload,
    SandboxInfo,
    ScoreRecorded,
    TurnGenerated,
)
from schemas.ids import digest, stable_id
from schemas.settings import Settings
from schemas.tokens import PrefixDigest, pack_ids, pack_logprobs
from tasks.task import Submission, store_submission

RUN = "run-1"
START_US = 1_700_000_000_000_000
SECOND = 1_000_000
OTHER_PREFIX = digest(b"other tokens")


def member(group: str, index: int) -> str:
    return stable_id(group, index)


class World:
    def __init__(self, folder: Path) -> None:
        self.settings = Settings(home=str(folder), sink_flush_interval_s=0.0)
        folder.mkdir(parents=True, exist_ok=True)
        self.artifacts = open_store(self.settings)
        self.log = open_log(self.settings)
        self.lake = open_lake(self.settings, self.artifacts)
        self.now_us = START_US

    def close(self) -> None:
        self.log.close()

    def append(self, payload: Payload, subject: str, sequence: int = 0, event_id: str | None = None) -> None:
        event = make_event(payload, subject=subject, source="test", time_us=self.now_us, sequence=sequence,
                           event_id=event_id)
        self.log.append(payload.TOPIC, [event]).result()

    def request(self, group: str, samples: int = 2, *, policy: str = "tiny", purpose: str = "train",
                first: int = 0) -> list[str]:
        """Ids of the requested members of a group."""
        self.now_us += SECOND
        ids = [member(group, index) for index in range(first, first + samples)]
        for index, episode_id in enumerate(ids, first):
            self.append(EpisodeRequested(
                episode_id=episode_id, run_id=RUN, group_id=group, sample_index=index, task_id=f"task-{group}",
                task_digest=digest(group.encode()), kind="tools", purpose=purpose, policy=policy,
                requested_at=self.now_us), episode_id)
        return ids

    def play(self, episode_id: str, reward: float | None = 1.0, *, termination: str = "completed",
             status: str | None = "ok", turns: Sequence[tuple[list[int], list[int]]] = (([5, 6], [7, 8]), ([9], [10])),
             logprobs: bool = True, prefix: str | None = None, version: int = 0, segments: Sequence[int] = (),
             sampler: str = "") -> None:
        """One whole episode, then its score unless `status` is None."""
        submits = termination not in ("cancelled", "infra_failure")
        submission = store_submission(Submission(
            task_id="task", task_digest=digest(b""), workspace=None, answer=episode_id), self.artifacts)
        story: list[Payload] = [EpisodeStarted(
            run_id=RUN, task_id="task", policy="tiny", sandbox=SandboxInfo(backend="process"), at=self.now_us)]
        story += _turns(turns, logprobs, prefix, version, segments, sampler, self.now_us)
        story.append(EpisodeFinished(
            termination=termination, failure_kind="oom" if termination == "infra_failure" else None, turns=len(turns),
            submission=submission if submits else None, at=self.now_us))
        for sequence, payload in enumerate(story):
            self.append(payload, episode_id, sequence)
        if submits and status is not None:
            self.score(episode_id, reward, status, submission.digest)

    def score(self, episode_id: str, reward: float | None, status: str = "ok", submission: str = "",
              cause: str = "live") -> None:
        score_id = stable_id("score", episode_id, cause)
        self.append(ScoreRecorded(
            score_id=score_id, episode_id=episode_id, submission=submission, verifier="tools",
            verifier_digest=digest(b"v"), status=status, reward=reward if status == "ok" else None, cause=cause,
            started_at=self.now_us, finished_at=self.now_us), episode_id, event_id=score_id)

    def group(self, name: str, rewards: Sequence[float], **how: object) -> list[str]:
        """A whole group, played and scored."""
        ids = self.request(name, len(rewards))
        for index, (episode_id, reward) in enumerate(zip(ids, rewards, strict=True)):
            turns = (([5, 6], [7, 8 + index]), ([9, 9, 9][:index % 3], [10]))
            self.play(episode_id, reward, **{"turns": turns, **how})  # type: ignore[arg-type]
        return ids

    def sink(self) -> None:
        """Everything in the log is in the lake afterwards."""
        Sink(self.log, self.lake, self.artifacts, self.settings).run(threading.Event(), until_idle=True)


def _turns(turns: Sequence[tuple[list[int], list[int]]], logprobs: bool, prefix: str | None, version: int,
           segments: Sequence[int], sampler: str, at: int) -> list[Payload]:
    told: list[Payload] = []
    seen: dict[int, PrefixDigest] = {}
    for number, (context, generated) in enumerate(turns):
        segment = segments[number] if segments else 0
        before = seen.setdefault(segment, PrefixDigest())
        before.add(pack_ids(context))
        told.append(TurnGenerated(
            turn=number, segment=segment, context=pack_ids(context), generated=pack_ids(generated),
            logprobs=pack_logprobs([-0.5] * len(generated)) if logprobs else None,
            versions=[(version, len(generated))] if logprobs else [], prefix=prefix or before.value(), sampler=sampler,
            started_at=at, finished_at=at))
        before.add(pack_ids(generated))
    return told
