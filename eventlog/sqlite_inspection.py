"""The SQLite log as an operator sees it: integrity of the file, heads against rows, checksums of every event."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw

from eventlog.inspection import GroupRow, Hole, PartitionRow, Scanned, TopicRow
from eventlog.sqlite_file import check, checksum, connect, earlier_checksums, empty, told, topics_of
from eventlog.sqlite_groups import live_members
from eventlog.sqlite_rows import COLUMNS, record_of, unreadable
from schemas.envelope import Position
from schemas.errors import HeadraceError, NotFoundError

_INDEXES = ("events_by_offset", "events_by_id")
_TABLES = ("meta", "topics", "heads", "events", "groups", "members", "owners", "commits")
_CHUNK = 1000
_BEFORE_ALL = -(2**63)
_MOST_FAULTS = 20
_LOST = "rows are gone from the file"
_DAMAGED = "checksum differs: the row, or its place, is not what was written"


class SqliteInspector:
    exactly_once = True

    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise NotFoundError("no log here", where=str(path), hint="`headrace log create` makes one, or name another "
                                                                     "--home or --log")
        self._path = path
        if path.stat().st_size == 0:
            raise empty(path)
        self._connection = connect(path, read_only=True)
        try:
            check(self._connection, path)
            self._numbers = {name: number for number, name, _ in topics_of(self._connection, path)}
        except BaseException:
            self._connection.close()
            raise

    def about(self) -> dict[str, str]:
        ahead = self._path.with_name(f"{self._path.name}-wal")
        identity = next((value for (value,) in self._rows("select value from meta where name = 'identity'")), "(none)")
        return {"backend": "sqlite", "identity": str(identity),
                "file": str(self._path), "file_bytes": str(self._path.stat().st_size),
                "write_ahead_bytes": str(ahead.stat().st_size if ahead.exists() else 0),
                "sqlite": apsw.sqlite_lib_version()}

    def topics(self) -> list[TopicRow]:
        return [TopicRow(name, count, "unlimited") for name, count in
                self._rows("select name, partitions from topics order by number")]

    def partitions(self) -> list[PartitionRow]:
        rows = self._rows("select name, partition, next_offset from heads join topics on topic = number"
                          " order by number, partition")
        return [PartitionRow(name, part, 0, end, None) for name, part, end in rows]

    def groups(self) -> list[GroupRow]:
        ends = {(row.topic, row.partition): row.end for row in self.partitions()}
        with told(self._path):
            names = [name for (name,) in self._rows("select distinct grp from commits")]
            living = {name: len(live_members(self._connection, name)) for name in names}
        rows = self._rows("select grp, topic, partition, next_offset from commits order by grp, topic, partition")
        return [GroupRow(group, topic, part, at, ends.get((topic, part), at) - at, living[group])
                for group, topic, part, at in rows]

    def faults(self) -> Iterator[str]:
        """Some are found by SQLite, some are what the tables promise each other."""
        try:
            found = [str(line) for (line,) in self._connection.execute(f"pragma integrity_check({_MOST_FAULTS})")]
        except (apsw.Error, UnicodeDecodeError) as wrong:
            found = [f"integrity_check failed: {wrong}"]
        yield from (line for line in found if line != "ok")
        try:
            yield from self._promises()
        except HeadraceError as wrong:
            yield str(wrong)

    def scan(self, row: PartitionRow) -> Iterator[Scanned | Hole]:
        wanted, read = row.start, row.start or _BEFORE_ALL
        while True:
            with told(self._path):
                chunk = self._chunk(row, read)
            for scanned in chunk:
                offset = scanned.record.position.offset
                if offset > wanted:
                    yield Hole(wanted, offset - 1, "missing", _LOST)
                wanted = read = max(wanted, offset + 1)
                yield scanned
            if not chunk:
                break
        if wanted < row.end:
            yield Hole(wanted, row.end - 1, "missing", _LOST)

    def close(self) -> None:
        self._connection.close()

    def _rows(self, query: str, *values: Any) -> list[Any]:
        with told(self._path):
            return self._connection.execute(query, values).fetchall()

    def _promises(self) -> Iterator[str]:
        there = {name for (name,) in self._rows("select name from sqlite_schema where type = 'index'")}
        yield from (f"index {name} is gone: nothing refuses a second event of one id or offset"
                    for name in _INDEXES if name not in there)
        tables = {name for (name,) in self._rows("select name from sqlite_schema where type = 'table'")}
        if gone := [name for name in _TABLES if name not in tables]:
            yield f"tables are gone from the file: {', '.join(gone)}"
            return
        if not self._rows("select 1 from meta where name = 'identity' and value <> ''"):
            yield "the log's identity is gone: no lake and no reader knows it again"
        for topic, count, heads in self._rows(
                "select name, partitions, (select count(*) from heads where topic = number) from topics"):
            if count != heads:
                yield f"topic {topic} has {count} partitions and the ends of {heads}"
        strays = self._rows(
            "select topic, partition, count(*) from events e where not exists"
            " (select 1 from heads h where h.topic = e.topic and h.partition = e.partition) group by topic, partition")
        yield from (f"{count} events lie in topic {topic}, partition {part}, which does not exist"
                    for topic, part, count in strays)
        beyond = self._rows(
            "select name, h.partition, count(*) from heads h join topics on h.topic = number join events e"
            " on e.topic = h.topic and e.partition = h.partition and e.offset >= h.next_offset group by 1, 2")
        yield from (f"{count} events lie beyond the end of {topic}-{part}" for topic, part, count in beyond)
        unknown = self._rows("select grp, topic, partition from commits c where not exists (select 1 from heads h join"
                             " topics t on t.number = h.topic where t.name = c.topic and h.partition = c.partition)")
        yield from (f"group {group} has read {topic}-{part}, which does not exist" for group, topic, part in unknown)
        ahead = self._rows("select grp, c.topic, c.partition, c.next_offset, h.next_offset from commits c join topics t"
                           " on t.name = c.topic join heads h on h.topic = t.number and h.partition = c.partition"
                           " where c.next_offset > h.next_offset order by 1, 2, 3")
        yield from (f"group {group} has read {topic}-{part} up to {at}, but it ends at {end}: the log lost its end"
                    for group, topic, part, at, end in ahead)

    def _chunk(self, row: PartitionRow, start: int) -> list[Scanned]:
        number = self._numbers[row.topic]
        cursor = self._connection.execute(
            f"select offset, checksum, {COLUMNS} from events where topic = ? and partition = ? and offset >= ?"
            " and offset < ? order by offset limit ?", (number, row.partition, start, row.end, _CHUNK))
        chunk: list[Scanned] = []
        try:
            for offset, kept, *cells in cursor:
                record = record_of(Position(row.topic, row.partition, offset), tuple(cells))
                place = (number, row.partition, offset)
                damaged = (record.event is not None and kept is not None and kept != checksum((*place, *cells))
                           and kept not in earlier_checksums(record.event, place))
                chunk.append(Scanned(record, _DAMAGED if damaged else ""))
        except UnicodeDecodeError:
            cursor.close(True)
            chunk = chunk or [self._unreadable(row, number, start)]
        return chunk

    def _unreadable(self, row: PartitionRow, number: int, start: int) -> Scanned:
        offset = self._rows("select min(offset) from events where topic = ? and partition = ? and offset >= ?",
                            number, row.partition, start)[0][0]
        return Scanned(unreadable(self._connection, Position(row.topic, row.partition, offset), number))
