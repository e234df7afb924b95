"""A home with a real log, artifact store and sandboxes, and what tests ask of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from artifacts.store import DirectoryStore
from eventlog import open_log
from eventlog.log import EventLog
from eventlog.sqlite import SqliteLog
from producers.producer import Producer
from producers.request import register_tasks, request_episodes
from producers.shift import Done
from sandboxes import open_backend
from sandboxes.sandbox import Backend
from schemas.codec import decode_payload, make_event
from schemas.envelope import Event, Record
from schemas.errors import UnavailableError
from schemas.events import EpisodeFinished, EpisodeRequested, Limits, Payload, Sampling
from schemas.ids import new_id, now_us
from schemas.settings import Settings
from schemas.topics import TRAJECTORIES
from schemas.transcript import Transcript, transcript_of
from tasks.task import Submission, Task, load_submission
from tests.conftest import require_real

LEASE_S = 1.0


class World:
    """`settings` may be replaced before the log, the store and the sandboxes are first used."""

    def __init__(self, home: Path, log: str = "sqlite") -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.home = home
        self.settings = Settings(home=str(home), log=log, tool_deadline_s=10.0)
        self.order: list[str] = []
        """Episodes in the order in which `produce` finished them."""

    def set(self, **changes: Any) -> World:
        self.settings = msgspec.structs.replace(self.settings, **changes)
        return self

    @cached_property
    def log(self) -> EventLog:
        if self.settings.log == "sqlite":
            return SqliteLog(self.home / "log.db", self.settings.log_partitions, LEASE_S)
        return open_log(self.settings)

    @cached_property
    def artifacts(self) -> DirectoryStore:
        return DirectoryStore(self.home / "artifacts")

    @cached_property
    def backend(self) -> Backend:
        try:
            return open_backend(self.settings, self.artifacts)
        except UnavailableError as why:
            require_real(self.settings.sandbox_backend, why.what)

    def close(self) -> None:
        for name in ("backend", "log"):
            if name in self.__dict__:
                self.__dict__[name].close()

    def script(self, turns: dict[str, Sequence[str]]) -> str:
        """A scripted policy that plays these turns for these task ids."""
        path = self.home / f"{new_id()}.jsonl"
        rows = [json.dumps({"task_id": task_id, "turns": list(lines)}) for task_id, lines in turns.items()]
        path.write_text("\n".join(rows))
        return f"scripted:{path}"

    def request(self, tasks: Sequence[Task], policy: str, **options: Any) -> list[EpisodeRequested]:
        options.setdefault("run_id", "run")
        registered = register_tasks(self.log, self.artifacts, tasks)
        return request_episodes(self.log, registered, policy=policy, **options)

    def produce(self, backend: Backend | None = None) -> list[EpisodeFinished]:
        """Run a producer until all that is requested is finished; what it finished, in order."""
        finished: list[Done] = []
        Producer(self.log, self.artifacts, backend or self.backend, self.settings,
                 on_finished=finished.append).run(threading.Event(), until_idle=True)
        self.order += [done.request.episode_id for done in finished]
        return [done.finished for done in finished]

    def play(self, task: Task, turns: Sequence[str], **options: Any) -> Transcript:
        """One episode of a task by a script."""
        request = self.request([task], self.script({task.task_id: turns}), **options)[0]
        self.produce()
        return self.transcript(request.episode_id)

    def records(self, topic: str = TRAJECTORIES) -> list[Record]:
        subscription, ends = self.log.subscribe([topic]), self.log.ends([topic])
        records: list[Record] = []
        while any(partition not in subscription.assignment() or subscription.position(partition) < end
                  for partition, end in ends.items()):
            records += subscription.poll(1.0)
        subscription.close()
        return records

    def events(self, episode_id: str) -> list[Event]:
        return [record.event for record in self.records()
                if record.event is not None and record.event.subject == episode_id]

    def payloads(self, episode_id: str) -> list[Payload]:
        return [payload for event in self.events(episode_id) if (payload := decode_payload(event)) is not None]

    def transcript(self, episode_id: str) -> Transcript:
        return transcript_of(episode_id, self.events(episode_id))

    def submission(self, episode_id: str) -> Submission:
        finished = self.transcript(episode_id).finished
        assert finished is not None
        assert finished.submission is not None
        return load_submission(finished.submission.digest, self.artifacts)

    def write(self, payload: Payload, subject: str) -> None:
        event = make_event(payload, subject=subject, source="test", time_us=now_us())
        self.log.append(payload.TOPIC, [event]).result()


def json_turn(tool: str, **arguments: object) -> str:
    return json.dumps({"tool": tool, "arguments": arguments})


def json_task(task_id: str = "task", **options: Any) -> Task:
    return Task(task_id=task_id, kind="coding", set="test", prompt="do it", **options)


def sampled(max_tokens: int = 20, seed: int = 0) -> Sampling:
    return Sampling(temperature=1.0, max_tokens=max_tokens, seed=seed)


def limits(**changes: Any) -> Limits:
    return msgspec.structs.replace(Limits(), **changes)
