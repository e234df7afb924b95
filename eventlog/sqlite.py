"""The embedded log: one SQLite file, any number of processes and threads that write and read it at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import apsw

from eventlog.checks import check_events, check_topic
from eventlog.log import Start, TopicPartition
from eventlog.sqlite_checkpoint import Checkpointer
from eventlog.sqlite_file import FORMAT, check, connect, damaged, prepare, take_over, told, topics_of
from eventlog.sqlite_groups import LEASE_S, Membership
from eventlog.sqlite_reader import SqliteSubscription
from eventlog.sqlite_writer import Topic, Writer
from schemas.envelope import Event, Position
from schemas.topics import TOPICS

Callback = Callable[[frozenset[TopicPartition]], None]


class SqliteLog:
    """An EventLog. Partition counts are those the file was made with; `partitions` counts only for a new one."""

    def __init__(self, path: Path, partitions: int, lease_s: float = LEASE_S) -> None:
        # Absolute, so that a change of the working folder does not move the log under its later connections.
        self._path, self._lease_s = path, lease_s = path.absolute(), lease_s
        self._subscriptions: list[SqliteSubscription] = []
        prepare(path, partitions)
        self._reader = connect(path, read_only=True)
        self._lock = threading.Lock()
        try:
            check(self._reader, path)
            with told(path):
                if self._reader.pragma("user_version") < FORMAT:
                    take_over(path)
                identity = self._reader.execute("select value from meta where name = 'identity'").get
            if type(identity) is not str or not identity:
                raise damaged(path, "the log's identity is gone", identity)
            self.identity: str = identity
            self._topics = {name: Topic(name, number, count) for number, name, count in topics_of(self._reader, path)}
            if absent := [name for name in TOPICS if name not in self._topics]:
                raise damaged(path, "topics are gone", absent)
            self._checkpointer = Checkpointer(path)
            self._writer = Writer(path, self._checkpointer)
        except BaseException:
            self._reader.close()
            raise

    def append(self, topic: str, events: Sequence[Event]) -> Future[list[Position]]:
        size = check_events(topic, events)
        if not events:
            done: Future[list[Position]] = Future()
            done.set_result([])
            return done
        return self._writer.append(self._topics[topic], tuple(events), size)

    def subscribe(self, topics: Sequence[str], group: str | None = None, start: Start = "earliest", *,
                  member: str | None = None, on_assign: Callback | None = None,
                  on_revoke: Callback | None = None) -> SqliteSubscription:
        for topic in topics:
            check_topic(topic)
        known = [self._topics[topic] for topic in topics]

        def join(reader: apsw.Connection) -> Membership | None:
            return Membership(self._writer, reader, group, member, known, self._lease_s) if group else None

        subscription = SqliteSubscription(self._path, known, start, join, on_assign, on_revoke)
        self._subscriptions = [one for one in self._subscriptions if not one.closed] + [subscription]
        return subscription

    def partitions(self, topic: str) -> int:
        check_topic(topic)
        return self._topics[topic].partitions

    def ends(self, topics: Sequence[str]) -> dict[TopicPartition, int]:
        for topic in topics:
            check_topic(topic)
        with told(self._path), self._lock:
            rows: list[Any] = self._reader.execute(
                "select name, partition, next_offset from heads join topics on topic = number"
                " order by number, partition").fetchall()
        return {(name, part): offset for name, part, offset in rows if name in topics}

    def close(self) -> None:
        """Wait for what was appended; readers that are still open are closed too."""
        for subscription in self._subscriptions:
            subscription.close()
        self._writer.close()
        self._checkpointer.close()
        with self._lock:
            self._reader.close()

