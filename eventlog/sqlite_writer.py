"""The one writing thread of an open SQLite log: everything that waits becomes one transaction (group commit).

Invariants: a Future is resolved only after the commit that holds its events; offsets are taken inside the
transaction, so they are contiguous in commit order over all processes; one append is all or nothing, and its failure
harms no other of its group; what waits is bounded, beyond that `append` blocks (back-pressure).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from eventlog.sqlite_checkpoint import Checkpointer
from eventlog.sqlite_file import OpenFiles, checksum, connect, told_as
from schemas.envelope import Event, Position, new_position
from schemas.errors import HeadraceError, LogError
from schemas.topics import TRAJECTORIES, partition_for

Job = Callable[[apsw.Connection], Any]
QUEUE_BYTES, QUEUE_EVENTS = 64 << 20, 50_000
GROUP_BYTES, GROUP_EVENTS = 32 << 20, 5_000
_BLOCKED_S = 60.0
_INSERT = "insert into events values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


class Topic(NamedTuple):
    name: str
    number: int
    partitions: int


class _Append(NamedTuple):
    future: Future[list[Position]]
    topic: Topic
    events: Sequence[Event]
    size: int


class _Task(NamedTuple):
    """Other work that belongs into the same transactions: groups, leases, commits of readers."""

    future: Future[Any]
    job: Job
    events: Sequence[Event] = ()
    size: int = 0


Heads = dict[tuple[int, int], int]


class Writer:
    def __init__(self, path: Path, checkpointer: Checkpointer) -> None:
        self._path = path
        self._connection = connect(path)
        self._checkpointer = checkpointer
        self._connection.set_wal_hook(self._committed)
        self._files = OpenFiles(path)
        self._changed = threading.Condition()
        self._waiting: deque[_Append | _Task] = deque()
        self._bytes = self._events = 0
        self._duties: dict[object, tuple[float, Job]] = {}
        self._due: dict[object, float] = {}
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)
        self._thread.start()

    def append(self, topic: Topic, events: Sequence[Event], size: int) -> Future[list[Position]]:
        future: Future[list[Position]] = Future()
        self._put(_Append(future, topic, events, size))
        return future

    def run(self, job: Job) -> Future[Any]:
        """Do `job` on the writing connection inside the next transaction."""
        future: Future[Any] = Future()
        self._put(_Task(future, job))
        return future

    def every(self, interval_s: float, job: Job) -> Callable[[], None]:
        """Do `job` again and again, inside transactions, until the returned function is called."""
        key = object()
        with self._changed:
            self._duties[key] = (interval_s, job)
            self._due[key] = time.monotonic() + interval_s
            self._changed.notify_all()

        def stop() -> None:
            with self._changed:
                self._duties.pop(key, None)
                self._due.pop(key, None)

        return stop

    def close(self) -> None:
        """Write what waits, then stop."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()
        self._connection.close()

    def _put(self, item: _Append | _Task) -> None:
        # An append is never withdrawn: a cancelled waiter must not leave it unknown whether the event was written.
        item.future.set_running_or_notify_cancel()
        with self._changed:
            if not self._changed.wait_for(lambda: self._closed or self._fits(item), _BLOCKED_S):
                raise LogError("log does not keep up", where=str(self._path),
                               value=f"{self._events} events, {self._bytes} bytes wait",
                               hint="the disk is slow or another process holds the log's lock")
            if self._closed:
                raise LogError("log is closed", where=str(self._path))
            self._waiting.append(item)
            self._bytes += item.size
            self._events += len(item.events)
            self._changed.notify_all()

    def _fits(self, item: _Append | _Task) -> bool:
        return not self._waiting or (self._bytes + item.size <= QUEUE_BYTES
                                     and self._events + len(item.events) <= QUEUE_EVENTS)

    def _run(self) -> None:
        while True:
            group = self._take()
            if group is None:
                return
            self._turn(group)

    def _take(self) -> list[_Append | _Task] | None:
        with self._changed:
            while not self._waiting and not self._closed:
                next_due = min(self._due.values(), default=None)
                if next_due is not None and next_due <= time.monotonic():
                    break
                self._changed.wait(None if next_due is None else next_due - time.monotonic())
            if self._closed and not self._waiting:
                return None
            group: list[_Append | _Task] = [_Task(_running(), job) for job in self._duties_due()]
            size = count = 0
            while self._waiting and (not count or (size < GROUP_BYTES and count < GROUP_EVENTS)):
                item = self._waiting.popleft()
                group.append(item)
                size, count = size + item.size, count + len(item.events)
            self._bytes, self._events = self._bytes - size, self._events - count
            self._changed.notify_all()
            return group

    def _duties_due(self) -> list[Job]:
        now = time.monotonic()
        due = [key for key, when in self._due.items() if when <= now]
        for key in due:
            self._due[key] = now + self._duties[key][0]
        return [self._duties[key][1] for key in due]

    def _turn(self, group: list[_Append | _Task]) -> None:
        """One transaction for the whole group, then the answers."""
        try:
            self._connection.execute("begin immediate")
            answers = self._write(group)
            self._connection.execute("commit")
            self._files.check()
        except Exception as wrong:
            self._roll_back()
            failure = told_as(wrong, self._path) if isinstance(wrong, apsw.Error) else wrong
            answers = [failure] * len(group)
        for item, answer in zip(group, answers, strict=True):
            if isinstance(answer, Exception):
                item.future.set_exception(answer)
            else:
                item.future.set_result(answer)
        self._checkpointer.finish(self._connection)

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            with contextlib.suppress(apsw.Error):  # SQLite may have rolled back by itself (disk full, I/O error).
                self._connection.execute("rollback")

    def _committed(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        self._checkpointer.saw(pages)
        return apsw.SQLITE_OK

    def _write(self, group: list[_Append | _Task]) -> list[Any]:
        appends = [item for item in group if isinstance(item, _Append)]
        answers: dict[int, Any] = {}
        heads: Heads = {}
        before: Heads = {}
        rows = [row for item in appends for row in self._rows(item, heads, before)]
        try:
            if rows:
                self._connection.executemany(_INSERT, rows)
        except apsw.ConstraintError:  # Some id is there already: look at each event.
            # A savepoint would be shorter, but SQLite then copies each page that it changes.
            self._connection.execute("rollback; begin immediate")
            heads, before = {}, {}
            for item in appends:
                answers[id(item)] = self._write_each(item, heads, before)
        else:
            start = 0
            for item in appends:
                mine = rows[start:start + len(item.events)]
                start += len(mine)
                answers[id(item)] = [new_position((item.topic.name, row[1], row[2])) for row in mine]
        changed = [(offset, *key) for key, offset in heads.items() if offset != before.get(key)]
        if changed:
            self._connection.executemany("update heads set next_offset = ? where topic = ? and partition = ?", changed)
        for task in group:
            if isinstance(task, _Task):
                answers[id(task)] = self._do(task.job)
        return [answers[id(item)] for item in group]

    def _rows(self, item: _Append, heads: Heads, before: Heads) -> list[tuple[Any, ...]]:
        """The rows of an append with their offsets; `heads` moves on, `before` keeps what the file said."""
        _, number, partitions = item.topic
        rows = []
        for event in item.events:
            key = (number, partition_for(event.subject, partitions))
            if key not in heads:
                self._read_heads(number, heads, before)
            offset = heads[key]
            heads[key] = offset + 1
            row = (*key, offset, *event)
            rows.append((*row, checksum(row)))
        return rows

    def _read_heads(self, number: int, heads: Heads, before: Heads) -> None:
        for part, offset in self._connection.execute("select partition, next_offset from heads where topic = ?",
                                                     (number,)):
            before.setdefault((number, part), offset)
            heads.setdefault((number, part), offset)

    def _write_each(self, item: _Append, heads: Heads, before: Heads) -> list[Position] | LogError:
        """One append event by event: what is there already keeps its position; a clash undoes this append alone."""
        moved, positions = dict(heads), []
        self._connection.execute("savepoint one")
        for event in item.events:
            there = self._find(item.topic, event)
            if isinstance(there, LogError):
                self._connection.execute("rollback to one; release one")
                return there
            if there is None:
                row = self._rows(item._replace(events=[event]), moved, before)[0]
                self._connection.execute(_INSERT, row)
                there = Position(item.topic.name, row[1], row[2])
            positions.append(there)
        self._connection.execute("release one")
        heads.update(moved)
        return positions

    def _find(self, topic: Topic, event: Event) -> Position | LogError | None:
        """Where an event of this id stands; a LogError if it is another event.

        In `trajectories` the whole event must be the same. Elsewhere events are self-contained facts of which the
        first with an id wins (DESIGN section 3), so a fact that is written again with other times keeps the first.
        """
        row = self._connection.execute(
            "select partition, offset, id, source, type, subject, sequence, time_us, data from events"
            " where topic = ? and id = ?", (topic.number, event.id)).fetchone()
        if row is None:
            return None
        position, there = Position(topic.name, int(row[0]), int(row[1])), Event(*row[2:])
        same = there == event if topic.name == TRAJECTORIES else there[2:5] == event[2:5]
        if not same:
            return LogError("another event with this id is in the log",
                            where=f"{topic.name}, partition {position.partition}, offset {position.offset}",
                            value=event.id, hint="an id names one event for ever: give the new event its own")
        return position

    def _do(self, job: Job) -> Any:
        self._connection.execute("savepoint task")
        try:
            answer = job(self._connection)
        except HeadraceError as wrong:
            self._connection.execute("rollback to task")
            answer = wrong
        self._connection.execute("release task")
        return answer


def _running() -> Future[Any]:
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    return future
