"""One run of a producer: what came in, what runs, what is done. All of its state lives in one event loop.

Facts come in through two tails: the requests of our partitions; trajectories and training, for ownership and weights.
Before a request is started, the second is read up to its end as of the moment when the request was seen: so what is
finished is not started again, what was begun is taken over, and weights that were published before a request are there.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from artifacts.store import ArtifactStore
from eventlog.log import EventLog, Start, Subscription, TopicPartition
from producers.backlog import Backlog, Item
from producers.desk import Desk
from producers.episode import HOST, Episode
from producers.ownership import Ownership
from producers.restoring import restore, unfinished
from producers.resume import Past, read_pasts
from producers.starter import Starter
from producers.tail import Tail
from producers.writer import Lost
from sandboxes.sandbox import Backend
from schemas.codec import readable_payload
from schemas.envelope import Record
from schemas.events import (
    CancelRequested,
    EpisodeFinished,
    EpisodeRequested,
    Payload,
    WeightsPublished,
)
from schemas.ids import new_id
from schemas.settings import Settings
from schemas.topics import REQUESTS, TRAINING, TRAJECTORIES

if TYPE_CHECKING:
    from lake.lake import Lake

GROUP = "produce"
TICK_S = 0.05
"""How often a wish to stop is looked at while nothing else happens."""
RETAKE_S = 15.0
"""When to look again at an episode of ours that another writer took."""
COMMIT_S = 1.0
REPORT_S = 30.0
_LOGGER = logging.getLogger("headrace.producer")


class Done(NamedTuple):
    """What `on_finished` is told."""

    request: EpisodeRequested
    finished: EpisodeFinished


class Running:
    """An episode at work. `episode` is there once it was set up."""

    def __init__(self, item: Item) -> None:
        self.item = item
        self.task: asyncio.Task[None] | None = None
        self.episode: Episode | None = None


class Shift:
    def __init__(self, log: EventLog, artifacts: ArtifactStore, backend: Backend, settings: Settings, member: str,
                 on_finished: Callable[[Done], None], lake: Lake | None = None) -> None:
        self._log, self._settings, self._member, self._on_finished = log, settings, member, on_finished
        self._lake = lake
        # Twice: a sandbox can be closed while every episode has a command running.
        self._pool = ThreadPoolExecutor(2 * settings.producer_concurrency, thread_name_prefix="sandbox")
        asyncio.get_running_loop().set_default_executor(self._pool)
        self.source = f"producer/{HOST}/{os.getpid()}/{new_id()}"
        self._ownership = Ownership(self.source, self._lose)
        self._desk = Desk(settings)
        self._starter = Starter(log, artifacts, backend, settings, self._pool, self._ownership, self._desk, self.source)
        self._backlog = Backlog()
        self._arrived: list[Record] = []
        self._running: dict[str, Running] = {}
        self._cancelled: set[str] = set()
        self._wanted: set[str] = set()
        """Episodes requested of anyone and not known to be finished; followed only until idle."""
        self._pasts: dict[str, Past] = {}
        self._reading_pasts = asyncio.Lock()
        self._unsure = True
        self._wake = asyncio.Event()
        self._failure: BaseException | None = None
        self._finished = 0

    async def work(self, stop: threading.Event, until_idle: bool) -> None:
        topics = [TRAJECTORIES, TRAINING, *([REQUESTS] if until_idle else [])]
        ends = await asyncio.to_thread(self._log.ends, [REQUESTS]) if until_idle else {}
        start = await asyncio.to_thread(self._restore, topics)
        self._facts = Tail("facts", lambda _: self._log.subscribe(topics, start=start), self._see_facts)
        self._requests = Tail("requests", self._subscribe, self._see_requests)
        committed = reported = time.monotonic()
        try:
            while not stop.is_set():
                self._raise_failures()
                await self._settle_arrivals()
                self._start()
                if until_idle and self._idle(ends):
                    return
                if time.monotonic() - committed > COMMIT_S:
                    self._requests.commit(self._backlog.committable())
                    committed = time.monotonic()
                if time.monotonic() - reported > REPORT_S:
                    _LOGGER.info("finished %d episodes, %d running, %d waiting", self._finished, len(self._running),
                                 self._backlog.waiting)
                    reported = time.monotonic()
                await self._next_event()
        finally:
            await self._close()

    def _restore(self, topics: list[str]) -> Start:
        start = restore(self._lake, self._log, topics, self._ownership, self._see_facts)
        if self._lake is not None and isinstance(start, dict) and REQUESTS in topics:
            self._wanted |= unfinished(self._lake, start, self._ownership)
        return start

    def _subscribe(self, tail: Tail) -> Subscription:
        def assigned(partitions: frozenset[TopicPartition]) -> None:
            tail.call(lambda: self._assign(partitions))

        def revoked(partitions: frozenset[TopicPartition]) -> None:
            tail.call(lambda: self._revoke(partitions))

        return self._log.subscribe([REQUESTS], GROUP, member=self._member, on_assign=assigned, on_revoke=revoked)

    def _assign(self, partitions: frozenset[TopicPartition]) -> None:
        _LOGGER.info("took request partitions %s", sorted(part for _, part in partitions))
        self._unsure = True
        self._wake.set()

    def _revoke(self, partitions: frozenset[TopicPartition]) -> None:
        """Whoever has the partitions now takes over: stop at once what runs of them, forget what waits."""
        self._arrived = [record for record in self._arrived if record.position[:2] not in partitions]
        for item in self._backlog.drop(partitions):
            self._lose(item.request.episode_id)
        self._pasts = {}

    def _lose(self, episode_id: str) -> None:
        running = self._running.get(episode_id)
        if running is not None and running.task is not None:
            running.task.cancel()

    def _see_facts(self, records: list[Record]) -> None:
        for record in records:
            topic = record.position.topic
            if topic == TRAJECTORIES:
                self._ownership.see(record)
                if record.event is not None and record.event.subject in self._wanted:
                    self._settle(record.event.subject)
            elif topic == REQUESTS and isinstance(asked := _payload(record), EpisodeRequested):
                self._wanted.add(asked.episode_id)
                self._settle(asked.episode_id)
            elif topic == TRAINING and isinstance(published := _payload(record), WeightsPublished):
                self._desk.published(published)
        self._wake.set()

    def _settle(self, episode_id: str) -> None:
        if self._ownership.claim_of(episode_id).finished:
            self._wanted.discard(episode_id)

    def _see_requests(self, records: list[Record]) -> None:
        self._arrived += records
        self._unsure = True
        self._wake.set()

    async def _settle_arrivals(self) -> None:
        """Sort in what arrived, once it is known what was begun, finished and published before."""
        while self._unsure:
            self._unsure = False
            arrived, self._arrived = self._arrived, []
            ends = await asyncio.to_thread(self._log.ends, [TRAJECTORIES, TRAINING])
            await self._facts.reached(ends)
            for record in arrived:
                self._sort_in(record)

    def _sort_in(self, record: Record) -> None:
        if record.position[:2] not in self._requests.positions:
            return  # Revoked meanwhile.
        payload = _payload(record)
        if isinstance(payload, EpisodeRequested):
            claim = self._ownership.claim_of(payload.episode_id)
            if not claim.finished:
                self._backlog.add(payload, record.position, resumable=claim.sequence >= 0)
                return
        elif isinstance(payload, CancelRequested):
            self._cancel(payload.episode_id)
        self._backlog.passed(record.position)

    def _cancel(self, episode_id: str) -> None:
        if self._ownership.claim_of(episode_id).finished:
            return
        self._cancelled.add(episode_id)
        running = self._running.get(episode_id)
        if running is not None and running.episode is not None:
            running.episode.cancelled = True

    def _start(self) -> None:
        while len(self._running) < self._settings.producer_concurrency:
            item = self._backlog.pop()
            if item is None:
                return
            episode_id = item.request.episode_id
            if self._ownership.claim_of(episode_id).finished:
                self._backlog.done(item)
            elif episode_id not in self._running:
                running = self._running[episode_id] = Running(item)
                running.task = asyncio.create_task(self._run(running), name=episode_id)

    async def _run(self, running: Running) -> None:
        item, episode_id = running.item, running.item.request.episode_id
        owner = self._ownership.claim_of(episode_id).owner
        retake_s = RETAKE_S
        try:
            past = await self._past(episode_id) if owner else None
            finished = await self._starter.run(item.request, past, lambda episode: self._set_up(running, episode))
            self._complete(item, finished)
        except Lost:
            if owner and self._ownership.claim_of(episode_id).owner == owner:  # Its last writer wrote on: look again.
                retake_s = 0.0
        except Exception as wrong:
            self._failure = wrong
        finally:
            del self._running[episode_id]
            self._wake.set()
            if self._backlog.holds(item):
                asyncio.get_running_loop().call_later(retake_s, self._look_again, item)

    def _complete(self, item: Item, finished: EpisodeFinished) -> None:
        self._backlog.done(item)
        self._cancelled.discard(item.request.episode_id)
        self._finished += 1
        self._on_finished(Done(item.request, finished))

    def _set_up(self, running: Running, episode: Episode) -> None:
        running.episode = episode
        episode.cancelled = running.item.request.episode_id in self._cancelled

    def _look_again(self, item: Item) -> None:
        if self._backlog.holds(item):
            self._backlog.put_back(item, resumable=True)
            self._wake.set()

    async def _past(self, episode_id: str) -> Past:
        """What the log holds of an open episode. One pass reads as many as can run at once: of those that run, and of
        those that are next."""
        async with self._reading_pasts:
            past = self._pasts.pop(episode_id, None)
            if past is None or past.transcript.claim != self._ownership.claim_of(episode_id):
                near = [episode_id, *self._running,
                        *self._backlog.taken_over_next(self._settings.producer_concurrency - len(self._pasts))]
                wanted = {name: self._ownership.open[name] for name in near
                          if name in self._ownership.open and name not in self._pasts
                          and (name == episode_id or self._ownership.open[name].claim.owner != self.source)}
                _LOGGER.info("taking over %d unfinished episodes", len(wanted))
                self._pasts |= await asyncio.to_thread(read_pasts, self._log, wanted, self._lake)
                past = self._pasts.pop(episode_id)
            return past

    def _idle(self, ends: dict[TopicPartition, int]) -> bool:
        read = all(self._facts.positions.get(partition, 0) >= end for partition, end in ends.items())
        return read and not self._wanted and not self._running and not self._arrived

    async def _next_event(self) -> None:
        try:
            async with asyncio.timeout(TICK_S):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()

    def _raise_failures(self) -> None:
        if self._failure is not None:
            raise self._failure
        for tail in (self._facts, self._requests):
            if tail.failure.done():
                tail.failure.result()

    async def _close(self) -> None:
        tasks = [running.task for running in self._running.values() if running.task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._requests.commit(self._backlog.committable())
        await asyncio.gather(self._requests.close(), self._facts.close())
        await self._desk.close()
        self._pool.shutdown(wait=True, cancel_futures=True)


def _payload(record: Record) -> Payload | None:
    return readable_payload(record.event) if record.event is not None else None
