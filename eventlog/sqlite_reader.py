"""A subscription to the SQLite log: reads by position, and waits by watching the file's commit counter.

`PRAGMA data_version` changes with every commit of another connection, in this process or any other. It is asked
every two milliseconds, less often when nothing has come for a while: a few percent of one core at most.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import apsw

from eventlog.log import Start, TopicPartition
from eventlog.sqlite_file import connect, told
from eventlog.sqlite_groups import Membership
from eventlog.sqlite_rows import COLUMNS, record_of, unreadable
from eventlog.sqlite_writer import Topic
from schemas.envelope import Position, Record
from schemas.errors import LogDamagedError, LogError

Callback = Callable[[frozenset[TopicPartition]], None]
Join = Callable[[apsw.Connection], Membership | None]
POLL_BYTES = 32 << 20
"""A poll returns no more than this (one event at least), so memory is bounded whatever the events weigh."""
_WATCH_S = 0.002
_WATCH_IDLE_S = 0.005
_IDLE_AFTER_S = 2.0
_SELECT = (f"select offset, {COLUMNS} from events"
           " where topic = ? and partition = ? and offset >= ? order by offset limit ?")

_THERE = "select exists (select 1 from events where topic = ? and partition = ? and offset >= ?)"


class SqliteSubscription:
    def __init__(self, path: Path, topics: Sequence[Topic], start: Start, join: Join,
                 on_assign: Callback | None, on_revoke: Callback | None) -> None:
        self._path = path
        self._topics = {topic.name: topic for topic in topics}
        self._start = start
        self._on_assign, self._on_revoke = on_assign, on_revoke
        self._connection = connect(path, read_only=True)
        self._membership = join(self._connection)
        self._positions: dict[TopicPartition, int] = {}
        self._unchecked: set[TopicPartition] = set()
        self._version = -1
        self._drained = False
        self._proven = False
        """Nothing is missing between the positions and the ends: asked before each wait."""
        self._last_news = time.monotonic()
        self._turn = 0
        self.closed = False
        if self._membership is None:
            everything = [(topic.name, part) for topic in topics for part in range(topic.partitions)]
            self._place(everything, {})
            if on_assign:
                on_assign(self.assignment())

    def poll(self, timeout_s: float = 0.1, max_records: int = 5000) -> list[Record]:
        deadline = time.monotonic() + timeout_s
        with told(self._path):
            while True:
                version = self._data_version()
                if self._membership is not None:
                    self._balance(self._membership)
                if version != self._version or not self._drained:
                    records = self._read(max_records)
                    self._version = version
                    if records:
                        self._last_news = time.monotonic()
                        return records
                if not self._proven:
                    self._require_rows(self._positions)
                    self._proven = True
                if not self._wait(deadline):
                    return []

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._positions)

    def position(self, partition: TopicPartition) -> int:
        self._must_have(partition)
        return self._positions[partition]

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._must_have(partition)
        if offset < 0:
            raise LogError("offset is negative", where=f"{partition[0]}-{partition[1]}", value=offset)
        self._positions[partition] = offset
        self._unchecked.add(partition)
        self._drained = False

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        if self._membership is None:
            raise LogError("only a group remembers offsets", hint="subscribe with a group")
        self._membership.commit(offsets)

    def close(self) -> None:
        self.closed = True
        if self._membership is not None:
            self._membership.leave()
            self._membership = None
        self._connection.close()

    def _must_have(self, partition: TopicPartition) -> None:
        if partition not in self._positions:
            raise LogError("partition is not assigned to this reader", value=f"{partition[0]}-{partition[1]}")

    def _data_version(self) -> int:
        return int(self._connection.execute("pragma data_version").get)

    def _wait(self, deadline: float) -> bool:
        """Sleep until a commit, or a while; False when the deadline has passed."""
        now = time.monotonic()
        if now >= deadline:
            return False
        look_again = now + self._membership.interval_s if self._membership else deadline
        until = min(deadline, look_again)
        step = _WATCH_S if now - self._last_news < _IDLE_AFTER_S else _WATCH_IDLE_S
        while now < until:
            time.sleep(min(step, until - now))
            if self._data_version() != self._version:
                return True
            now = time.monotonic()
        return True

    def _read(self, max_records: int) -> list[Record]:
        records: list[Record] = []
        partitions = sorted(self._positions)
        self._turn += 1
        size = 0
        self._drained = True
        for index in range(len(partitions)):
            partition = partitions[(index + self._turn) % len(partitions)]
            if len(records) >= max_records or size >= POLL_BYTES:
                self._drained = False
                break
            if partition in self._unchecked:
                self._check_position(partition)
            rows, whole, read = self._rows(partition, max_records - len(records), POLL_BYTES - size)
            records.extend(rows)
            size += read
            self._drained &= whole
        self._proven = False
        return records

    def _require_rows(self, partitions: Iterable[TopicPartition]) -> None:
        """Rows move an end in their own transaction: where there is none before the end, they were lost, and a reader
        would wait for them for ever. Raises LogDamagedError."""
        for (name, part), end in self._heads(partitions).items():
            at = self._positions[name, part]
            if at < end and not self._connection.execute(_THERE, (self._topics[name].number, part, at)).get:
                raise LogDamagedError("rows are gone from the log", where=f"{name}-{part}", value=f"{at} to {end - 1}",
                                      hint=f"`headrace log verify` says what else is; restore a backup of {self._path}")

    def _rows(self, partition: TopicPartition, limit: int, size_limit: int) -> tuple[list[Record], bool, int]:
        """Records of one partition, whether those were all, and their size. Moves the position."""
        name, number = partition
        start = self._positions[partition]
        cursor = self._connection.execute(_SELECT, (self._topics[name].number, number, start, limit))
        records: list[Record] = []
        size, readable = 0, True
        try:
            for offset, *row in cursor:
                records.append(record_of(Position(name, number, offset), tuple(row)))
                size += len(row[-1]) if type(row[-1]) is bytes else 0
                if size >= size_limit:
                    cursor.close(True)
                    break
        except UnicodeDecodeError:
            cursor.close(True)
            readable = False
            if not records:  # Else it is the first of the next read.
                records = [self._unreadable(partition, start)]
        if records:
            self._positions[partition] = records[-1].position.offset + 1
        return records, readable and len(records) < limit and size < size_limit, size

    def _unreadable(self, partition: TopicPartition, start: int) -> Record:
        name, part = partition
        topic = self._topics[name].number
        offset = self._connection.execute("select min(offset) from events where topic = ? and partition = ?"
                                          " and offset >= ?", (topic, part, start)).get
        return unreadable(self._connection, Position(name, part, offset), topic)

    def _check_position(self, partition: TopicPartition) -> None:
        end = self._heads([partition])[partition]
        if self._positions[partition] > end:
            raise LogError("position lies beyond the end of the log", where=f"{partition[0]}-{partition[1]}",
                           value=self._positions[partition],
                           hint=f"the log ends at {end}: it is older than what the reader remembers of it")
        self._unchecked.discard(partition)

    def _heads(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        query = "select next_offset from heads where topic = ? and partition = ?"
        heads = {(name, part): self._connection.execute(query, (self._topics[name].number, part)).get
                 for name, part in partitions}
        if lost := [f"{name}-{part}" for (name, part), end in heads.items() if end is None]:
            raise LogDamagedError("the log does not know where a partition ends", where=str(self._path), value=lost,
                                  hint="`headrace log verify` says what else is wrong; restore a backup of log.db*")
        return {partition: int(end) for partition, end in heads.items()}

    def _place(self, partitions: Iterable[TopicPartition], committed: Mapping[TopicPartition, int]) -> None:
        """Start to read partitions: where the group was, else at `start`."""
        partitions = list(partitions)
        if isinstance(self._start, str):
            if self._start not in ("earliest", "latest"):
                raise LogError("unknown start", value=self._start, hint="earliest, latest, or a mapping of offsets")
            begin: Mapping[TopicPartition, int] = {} if self._start == "earliest" else self._heads(partitions)
        else:
            begin = self._start
        for partition in partitions:
            self._positions[partition] = committed.get(partition, begin.get(partition, 0))
            self._unchecked.add(partition)
        self._drained = False

    def _balance(self, membership: Membership) -> None:
        """Give back what others should have, take what is ours and free; callbacks run in between."""
        view = membership.look(self.assignment())
        if view is None:
            return
        lost = self.assignment() - view.keep
        if lost:
            for partition in lost:
                del self._positions[partition]
            if self._on_revoke:
                self._on_revoke(lost)
        if view.fenced:
            raise LogError("another process took over this member of the group", where=f"group {membership.group}",
                           value=membership.member, hint="a static member id belongs to one process at a time")
        granted: dict[TopicPartition, Any] = membership.settle(self.assignment())
        new = frozenset(granted) - self.assignment()
        if new:
            self._place(new, {part: offset for part, offset in granted.items() if offset is not None})
            if self._on_assign:
                self._on_assign(new)
