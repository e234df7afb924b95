"""What a reader sees: the positions of `events`, then, read after them, the live files of each table.

In that order a table's files hold at least all rows below the positions; rows beyond are filtered by the views. So one
snapshot holds for all tables of a query, while a sink commits and compacts. A table whose own positions do not exceed
the snapshot has no rows beyond it, and is read without a filter.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from artifacts.folder import Folder
from eventlog.log import TopicPartition
from lake.place import sql_file
from lake.tablelog import TableLog, open_log
from lake.tables import LOST, REBUILD, lost_rows
from lake.transactions import positions_of, promises_of
from schemas.errors import LakeError, QueryError
from schemas.tables import TABLES

Positions = Mapping[TopicPartition, int]


class Held(NamedTuple):
    """The live files of a table, and how far its rows reach: none lies at or beyond `ends`."""

    paths: list[str]
    ends: Positions

    def within(self, snapshot: Positions) -> bool:
        """Every row is below the snapshot, so there is nothing to filter. Of a table without ends nothing is known."""
        return bool(self.ends) and all(end <= snapshot.get(part, 0) for part, end in self.ends.items())


class TableReader:
    """One table for reading: its log is opened once and then only followed."""

    def __init__(self, root: Folder, name: str) -> None:
        self._root, self._name = root, name
        self._log: TableLog | None = None
        self._held: tuple[int, Held] = (-1, Held([], {}))

    def refresh(self) -> TableLog | None:
        """The table as it is now; None while there is none."""
        if self._log is not None and self._log.there():
            self._log.follow()
        else:
            self.forget()
            self._log = open_log(self._root, self._name)
        return self._log

    def forget(self) -> None:
        self._log = None
        self._held = (-1, Held([], {}))

    def positions(self) -> dict[TopicPartition, int]:
        log = self.refresh()
        return positions_of(log.transactions, log.identity) if log else {}

    def promises(self) -> dict[str, dict[TopicPartition, int]]:
        """What `events` (this table) says of the others."""
        log = self.refresh()
        return promises_of(log.transactions, log.identity) if log else {}

    def held(self) -> Held:
        log = self.refresh()
        if log is None:
            return Held([], {})
        if self._held[0] != log.version:
            paths = [sql_file(log.folder.url, file.path, file.size) for file in log.files]
            self._held = (log.version, Held(paths, positions_of(log.transactions, log.identity)))
        return self._held[1]


class SnapshotReader:
    """All tables for reading. Thread-safe."""

    def __init__(self, root: Folder) -> None:
        self._root = root
        self._tables: dict[str, TableReader] = {}
        self._lock = threading.Lock()

    def identity(self) -> str:
        """Identity of the log whose copy this lake is; empty for a lake without a commit."""
        with self._lock:
            log = self._table("events").refresh()
            return log.identity if log else ""

    def positions(self, table: str = "events") -> dict[TopicPartition, int]:
        with self._lock:
            return self._table(table).positions()

    def held(self, tables: Iterable[str]) -> dict[str, Held]:
        """Raises LakeError where a table is gone whose rows `events` promises."""
        with self._lock:
            found = {name: self._table(name).held() for name in tables}
            if any(not held.paths for held in found.values()):
                promises = self._table("events").promises()
                for name, held in found.items():
                    if not held.paths and name in promises:
                        raise lost_rows(self._root.at(name), snapshot_of(promises[name]))
            return found

    def require_whole(self) -> None:
        """Raises LakeError if a table cannot be opened, is of a newer release or a copy of another log, or has lost
        rows that `events` says it holds."""
        with self._lock:
            for name in TABLES:
                self._table(name).refresh()
        for name, wrong in self.unkept():
            raise LakeError(wrong, where=self._root.at(name).url, hint=REBUILD)

    def unkept(self) -> Iterator[tuple[str, str]]:
        """Tables that are not what `events` says of them, and why not."""
        with self._lock:
            events = self._table("events")
            log, promises = events.refresh(), events.promises()
            for name in TABLES if log else ():
                table = self._table(name)
                found, held, promised = table.refresh(), table.positions(), promises.get(name, {})
                if found is not None and log is not None and found.identity != log.identity:
                    yield name, (f"is a copy of log {found.identity or '(none)'}, where `events` is one of "
                                 f"{log.identity or '(none)'}")
                elif any(held.get(part, 0) < offset for part, offset in promised.items()):
                    yield name, f"{LOST}: {snapshot_of(promised)}"

    def forget(self) -> None:
        with self._lock:
            self._tables.clear()

    def _table(self, name: str) -> TableReader:
        if name not in self._tables:
            self._tables[name] = TableReader(self._root, name)
        return self._tables[name]


def snapshot_of(positions: Positions) -> dict[str, int]:
    """The written form: `topic-partition` to next offset."""
    return {f"{topic}-{partition}": offset for (topic, partition), offset in sorted(positions.items())}


def parse_snapshot(snapshot: Mapping[str, int]) -> dict[TopicPartition, int]:
    """Raises LakeError naming the key at fault."""
    positions: dict[TopicPartition, int] = {}
    for key, offset in snapshot.items():
        topic, _, number = key.rpartition("-")
        if not topic or not number.isdigit() or offset < 0:
            raise LakeError("snapshot has a wrong entry", value=f"{key}: {offset}",
                            hint="a snapshot maps `topic-partition` to the next offset")
        positions[topic, int(number)] = offset
    return positions


def require_reached(wanted: Positions, reached: Positions) -> None:
    """A snapshot that the lake does not hold yet cannot be read."""
    for part, offset in wanted.items():
        if offset > reached.get(part, 0):
            raise QueryError("snapshot lies beyond what the lake holds", where=f"{part[0]}-{part[1]}",
                             value={"snapshot": offset, "lake": reached.get(part, 0)},
                             hint="wait for the sink, or use an older snapshot")
