"""Hand-made histories: a story tells events, `pour` puts them into a lake the way the sink does."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from artifacts.store import ArtifactStore
from consumers.columns import RowBuffer
from consumers.folding import Folding
from eventlog.log import TopicPartition
from lake.lake import Lake
from schemas.codec import make_event
from schemas.envelope import Event, Position, Record
from schemas.events import (
    ArtifactRef,
    BatchSealed,
    CancelRequested,
    EpisodeFinished,
    EpisodeRequested,
    EpisodeResumed,
    EpisodeStarted,
    Payload,
    SandboxInfo,
    ScoreRecorded,
    StepCompleted,
    TaskRegistered,
    ToolCalled,
    ToolReturned,
    TurnGenerated,
    WeightsPublished,
)
from schemas.ids import digest, stable_id
from schemas.tokens import PrefixDigest, pack_ids, pack_logprobs
from schemas.topics import TOPICS, partition_for, partitions_of

IDENTITY = "log-1"
START_US = 1_700_000_000_000_000


class Story:
    """Events in the order in which they are told. `time_us` moves on by one millisecond with each."""

    def __init__(self, artifacts: ArtifactStore, run_id: str = "run-1") -> None:
        self.artifacts, self.run_id = artifacts, run_id
        self.told: list[tuple[str, Event]] = []
        self.sequences: dict[str, int] = {}
        self.prefixes: dict[str, PrefixDigest] = {}
        self.time_us = START_US

    def tell(self, payload: Payload, subject: str, *, source: str = "writer-1", sequence: int = 0,
             event_id: str | None = None, topic: str | None = None) -> Event:
        self.time_us += 1000
        event = make_event(payload, subject=subject, source=source, sequence=sequence, time_us=self.time_us,
                           event_id=event_id or stable_id("event", len(self.told), subject))
        self.told.append((topic or payload.TOPIC, event))
        return event

    def step(self, payload: Payload, episode: str, source: str = "writer-1", sequence: int | None = None) -> Event:
        """The next event of an episode, or one with another sequence."""
        if sequence is None:
            sequence = self.sequences[episode] = self.sequences.get(episode, -1) + 1
        return self.tell(payload, episode, source=source, sequence=sequence)

    def task(self, task_id: str = "task-1", kind: str = "tools", verifier: str = "", version: int = 1) -> None:
        digest_ = digest(f"{task_id} {version}".encode())
        self.tell(TaskRegistered(task_id=task_id, kind=kind, digest=digest_, set="s", spec=ArtifactRef(digest_, 1),
                                 verifier=verifier, at=self.time_us), task_id)

    def request(self, *episodes: str, purpose: str = "train", group: str = "group-1", task: str = "task-1",
                kind: str = "tools", run_id: str = "", version: int = 1) -> None:
        for index, episode in enumerate(episodes):
            self.tell(EpisodeRequested(
                episode_id=episode, run_id=run_id or self.run_id, group_id=group, sample_index=index, task_id=task,
                task_digest=digest(f"{task} {version}".encode()), kind=kind, purpose=purpose, policy="tiny",
                requested_at=self.time_us), episode)

    def cancel(self, episode: str) -> None:
        self.tell(CancelRequested(episode_id=episode, reason="enough", at=self.time_us), episode)

    def start(self, episode: str, source: str = "writer-1", purpose: str = "train", task: str = "task-1",
              sequence: int | None = None) -> Event:
        return self.step(EpisodeStarted(
            run_id=self.run_id, task_id=task, policy="tiny", sandbox=SandboxInfo(backend="process"), at=self.time_us,
            group_id="group-1", task_digest=digest(f"{task} 1".encode()), kind="tools", purpose=purpose,
            requested_at=START_US), episode, source, sequence)

    def turn(self, episode: str, number: int = 0, source: str = "writer-1", sequence: int | None = None,
             logprobs: bool = True) -> Event:
        context, generated = [number, number + 1], [number + 7, number + 8, number + 9]
        prefix = self.prefixes.setdefault(episode, PrefixDigest())
        prefix.add(pack_ids(context))
        value = prefix.value()
        prefix.add(pack_ids(generated))
        return self.step(TurnGenerated(
            turn=number, context=pack_ids(context), generated=pack_ids(generated),
            logprobs=pack_logprobs([-0.5, -0.25, -1.0]) if logprobs else None, versions=[(2, 1), (3, 2)], prefix=value,
            text=f"turn {number}", sampler="test", started_at=self.time_us - 500, finished_at=self.time_us),
            episode, source, sequence)

    def call(self, episode: str, number: int = 0, source: str = "writer-1") -> None:
        self.step(ToolCalled(turn=number, call_id=f"call-{number}", tool="calc", arguments="1 + 1", at=self.time_us),
                  episode, source)
        self.step(ToolReturned(turn=number, call_id=f"call-{number}", status="ok", exit_code=0, output="2",
                               output_bytes=1, duration_s=0.25, at=self.time_us), episode, source)

    def resume(self, episode: str, source: str, restart: bool = False, attempt: int = 1) -> Event:
        if restart:
            self.prefixes.pop(episode, None)
        return self.step(EpisodeResumed(attempt=attempt, restart=restart, reason="test", at=self.time_us), episode,
                         source)

    def finish(self, episode: str, termination: str = "completed", source: str = "writer-1",
               failure_kind: str | None = None) -> Event:
        nothing = termination in ("cancelled", "infra_failure", "policy_error")
        return self.step(EpisodeFinished(
            termination=termination, failure_kind=failure_kind, answer="2", turns=1, tool_calls=1,
            context_token_count=2, generated_token_count=3, at=self.time_us,
            submission=None if nothing else self.submission(episode)), episode, source)

    def submission(self, episode: str) -> ArtifactRef:
        return self.artifacts.put(f"submission of {episode}".encode())

    def score(self, episode: str, reward: float | None = 1.0, status: str = "ok", verifier: str = "tools",
              cause: str = "live", score_id: str = "", evidence: bool = True, submission: str = "",
              topic: str | None = None) -> None:
        score_id = score_id or stable_id("score", episode, verifier, cause)
        self.tell(ScoreRecorded(
            score_id=score_id, episode_id=episode, submission=submission or self.submission(episode).digest,
            verifier=verifier, verifier_digest=digest(b"v"), status=status, reward=reward, cause=cause,
            components={"content": 0.5}, evidence=self.artifacts.put(score_id.encode()) if evidence else None,
            started_at=self.time_us - 200, finished_at=self.time_us, run_id=self.run_id), episode,
            event_id=f"{score_id}-{len(self.told)}", topic=topic)

    def episode(self, episode: str, reward: float | None = 1.0, purpose: str = "train") -> None:
        """A whole one: started, one turn, one call, finished, scored (unless the reward is None)."""
        self.start(episode, purpose=purpose)
        self.turn(episode)
        self.call(episode)
        self.finish(episode)
        if reward is not None:
            self.score(episode, reward)

    def seal(self, batch_id: str, step: int, decisions: dict[str, str], reason: str = "rule",
             rows: Sequence[str] | None = None) -> None:
        trained = [episode for episode, decision in decisions.items() if decision == "trained"]
        members = trained if rows is None else rows
        manifest = {
            "rows": [{"episode_id": episode, "segment": 0, "sequence": index, "position": 0, "tokens": 5,
                      "trained_tokens": 3, "reward": 1.0, "advantage": 0.5} for index, episode in enumerate(members)],
            "dispositions": [{"episode_id": episode, "disposition": decision, "reason": reason}
                             for episode, decision in decisions.items()],
            "snapshot": {}, "spec": {}, "code_digest": "x"}
        ref = self.artifacts.put(json.dumps(manifest).encode(), "application/json")
        self.sealed(batch_id, step, ref, len(set(members)))

    def sealed(self, batch_id: str, step: int, manifest: ArtifactRef, episodes: int) -> None:
        self.tell(BatchSealed(
            batch_id=batch_id, run_id=self.run_id, step=step, version=step, manifest=manifest, sha256="x",
            episodes=episodes, sequences=episodes, tokens=5 * episodes, packing="none", snapshot={"scores-0": 3},
            at=self.time_us), self.run_id)

    def trained(self, step: int, batch_id: str, loss: float = 0.5) -> None:
        self.tell(StepCompleted(run_id=self.run_id, step=step, batch_id=batch_id,
                                metrics={"loss": loss, "tokens": 12.0}, at=self.time_us), self.run_id)
        self.tell(WeightsPublished(run_id=self.run_id, version=step + 1, digest=digest(b"w"), path="w", step=step,
                                   at=self.time_us), self.run_id)


def whole_story(story: Story, episodes: int = 4) -> None:
    """Something of everything: zombies, an unknown type, a payload that violates its schema, a wrong topic, batches."""
    story.task()
    names = [f"episode-{number}" for number in range(episodes)]
    story.request(*names)
    for name in names:
        story.episode(name)
    story.turn(names[0], 9, source="zombie", sequence=1)  # After the finish.
    story.request("open", "late", purpose="eval", group="group-2")
    story.start("open")
    story.turn("open", 0, source="zombie", sequence=1)  # Not the owner.
    story.turn("open", 0)
    story.step(ToolCalled(turn=0, call_id="c", tool="calc", arguments="", at=story.time_us), "open")
    story.cancel("late")
    strange = Event("strange", "writer-1", "headrace.episode.paused.v1", "open", 3, story.time_us, b"\x80")
    violating = Event("broken", "writer-1", "headrace.turn.generated.v1", "open", 4, story.time_us, b"\x81\xa4turn\xc0")
    story.told += [("trajectories", strange), ("trajectories", violating)]
    story.sequences["open"] = 4
    story.score("open", topic="requests")
    story.seal("batch-1", 0, {names[0]: "trained", names[1]: "trained", names[2]: "filtered"})
    story.trained(0, "batch-1")


def records_of(told: Iterable[tuple[str, Event]], partitions: int = 4) -> list[Record]:
    """Where a log with that many partitions would keep them."""
    ends: dict[TopicPartition, int] = {}
    records = []
    for topic, event in told:
        number = partition_for(event.subject, partitions_of(topic, partitions))
        offset = ends.setdefault((topic, number), 0)
        ends[topic, number] += 1
        records.append(Record(Position(topic, number, offset), event))
    return records


def everywhere(partitions: int = 4) -> dict[TopicPartition, int]:
    return {(topic, number): 0 for topic in TOPICS for number in range(partitions_of(topic, partitions))}


Positions = dict[TopicPartition, int]


def flush_of(folding: Folding, records: Sequence[Record]) -> tuple[dict[str, Any], Positions, Positions]:
    """Tables, start and end of one flush with exactly these records."""
    start: Positions = {}
    end: Positions = {}
    buffer = RowBuffer()
    for record in records:
        part = (record.position.topic, record.position.partition)
        start.setdefault(part, record.position.offset)
        end[part] = record.position.offset + 1
        buffer.add(folding.rows(record))
    return buffer.tables(), start, end


def pour(lake: Lake, artifacts: ArtifactStore, records: Sequence[Record], size: int = 10_000,
         folding: Folding | None = None) -> None:
    """Commit the records in flushes of `size`."""
    lake.bind(IDENTITY)
    folding = folding or Folding(artifacts)
    for first in range(0, len(records), size):
        lake.commit(*flush_of(folding, records[first:first + size]))


def rows(lake: Lake, query: str, **parameters: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in lake.sql(query, parameters=parameters or None).to_pylist()]
