"""Asking for episodes: tasks are registered, requests are written. Both may be repeated without harm.

A registration's event id follows from the set and the task's digest. With a `group_key`, episode, group and event ids
follow from (run, group key, task, sample), so a program that was interrupted asks again and gets the same episodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from artifacts.store import ArtifactStore
from eventlog.log import EventLog
from schemas.codec import make_event, readable_payload
from schemas.envelope import Event
from schemas.events import EpisodeRequested, Limits, Payload, Sampling, TaskRegistered
from schemas.ids import new_id, now_us, stable_id
from schemas.topics import REQUESTS, TASKS
from tasks.task import Task, store_task

SOURCE = "requests"
_WRITERS = 16
_CHUNK = 1000
"""Events in one append."""


def register_tasks(log: EventLog, artifacts: ArtifactStore, tasks: Iterable[Task]) -> list[TaskRegistered]:
    """Store the specs and make the tasks known; returns when both are durable."""
    with ThreadPoolExecutor(_WRITERS) as pool:  # Syncs of many threads share a commit of the file system's journal.
        registered = list(pool.map(lambda task: store_task(task, artifacts), tasks))
    _append(log, TASKS, [
        _event(payload, payload.task_id, stable_id("task", payload.set, payload.digest), payload.at)
        for payload in registered])
    return registered


def mark_tasks(log: EventLog, marked: Iterable[TaskRegistered], cause: str) -> None:
    """Register tasks anew that a check (`cause`) has quarantined or released; returns when that is durable."""
    _append(log, TASKS, [
        _event(payload, payload.task_id, stable_id("task", payload.set, payload.digest, cause), payload.at)
        for payload in marked])


def registered_tasks(log: EventLog) -> list[TaskRegistered]:
    """All tasks that the log knows, as they stand now, in the order of their first registration."""
    seen: set[str] = set()
    known: dict[tuple[str, str], TaskRegistered] = {}
    for event in _read(log, TASKS):
        payload = readable_payload(event)
        if isinstance(payload, TaskRegistered) and event.id not in seen:
            seen.add(event.id)
            known[payload.set, payload.digest] = payload
    return list(known.values())


def request_episodes(
        log: EventLog, registered: Sequence[TaskRegistered], *, run_id: str, policy: str, purpose: str = "train",
        samples: int = 1, sampling: Sampling | None = None, limits: Limits | None = None, group_key: str | None = None,
        priority: int = 0, version: int | None = None) -> list[EpisodeRequested]:
    """`samples` episodes of each task; the samples of a task are one group. Returns when they are durable.

    Higher priorities start first. `limits` can tighten those of a task. `version` asks for exactly these weights.
    """
    at = now_us()
    requests = []
    for task in registered:
        parts = (run_id, group_key, task.task_id, task.digest)
        group_id = new_id() if group_key is None else stable_id("group", *parts)
        requests += [EpisodeRequested(
            episode_id=new_id() if group_key is None else stable_id("episode", *parts, sample),
            run_id=run_id, group_id=group_id, sample_index=sample, task_id=task.task_id, task_digest=task.digest,
            kind=task.kind, purpose=purpose, policy=policy, sampling=sampling or Sampling(), limits=limits or Limits(),
            priority=priority, requested_at=at, version=version) for sample in range(samples)]
    _append(log, REQUESTS, [
        _event(request, request.episode_id, stable_id("request", request.episode_id), at) for request in requests])
    return requests


def _event(payload: Payload, subject: str, event_id: str, at: int) -> Event:
    return make_event(payload, subject=subject, source=SOURCE, time_us=at, event_id=event_id)


def _append(log: EventLog, topic: str, events: list[Event]) -> None:
    futures = [log.append(topic, events[start:start + _CHUNK]) for start in range(0, len(events), _CHUNK)]
    for future in futures:
        future.result()


def _read(log: EventLog, topic: str) -> Iterator[Event]:
    ends = log.ends([topic])
    subscription = log.subscribe([topic])
    try:
        while not all(part in subscription.assignment() and subscription.position(part) >= end
                      for part, end in ends.items()):
            for record in subscription.poll(0.1):
                if record.event is not None:
                    yield record.event
    finally:
        subscription.close()
