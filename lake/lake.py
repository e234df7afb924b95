"""The lake: what the log became, in tables. One object for reading and writing; the log stays the authority.

Reading is thread-safe and always sees one snapshot: every event below an offset vector, and every row made of those
events. Writing is for one sink at a time in a process; several processes may try, and the commit keeps them apart.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from artifacts.folder import Folder
from artifacts.local_folder import LocalFolder
from eventlog.log import TopicPartition
from lake.commit import commit_flush
from lake.interrupt import interruptible
from lake.query import Engine, Parameters, VanishedError, read_only, run, user_error
from lake.relations import statements
from lake.snapshot import Positions, SnapshotReader, parse_snapshot, require_reached, snapshot_of
from lake.tables import WriterTable, create_table, table_exists
from lake.views import PUBLIC, mentioned
from schemas.errors import LakeError
from schemas.tables import TABLES

if TYPE_CHECKING:
    import duckdb

    from artifacts.store import ArtifactStore

_ATTEMPTS = 5
T = TypeVar("T")


class Lake:
    def __init__(self, folder: Folder, artifacts: ArtifactStore, spill: Path, memory_mb: int = 1024) -> None:
        self.folder, self.artifacts = folder, artifacts
        self._reader = SnapshotReader(folder)
        self._engine = Engine(folder, memory_mb, spill)
        self._identity = ""
        self._tables: dict[str, WriterTable] = {}
        self._writing = threading.Lock()

    @property
    def root(self) -> Path:
        """The directory of a lake that lies in one."""
        if isinstance(self.folder, LocalFolder):
            return self.folder.path
        raise LakeError("this lake does not lie in a directory", where=self.folder.url)

    @property
    def identity(self) -> str:
        """Identity of the log that this lake is a copy of; empty before the first commit."""
        return self._identity or self._reader.identity()

    def bind(self, identity: str) -> None:
        """Say which log will be written: the first one makes the lake its own. Raises LakeError for another."""
        if not table_exists(self.folder, "events"):
            create_table(self.folder, "events", identity)
        owner = self._reader.identity()
        if owner != identity:
            raise LakeError("the lake is a copy of another log", where=self.folder.url,
                            value={"lake": owner, "log": identity},
                            hint="use the home that belongs to this log, or move the lake folder away to build it anew")
        self._identity = identity

    def positions(self, table: str = "events") -> dict[TopicPartition, int]:
        """Next offset by topic-partition: all before it is in the table. `events` is the lake's position."""
        return self._reader.positions(table)

    def snapshot(self) -> dict[str, int]:
        """The present as an offset vector, `topic-partition` to next offset: give it to `sql(as_of=...)` later."""
        return snapshot_of(self.positions())

    def commit(self, rows: Mapping[str, pa.Table], start: Positions, end: Positions) -> None:
        """Add the rows that the events from `start` to `end` became, exactly once (see `lake/commit.py`).

        Raises CommitConflictError or LakeError: then drop what was buffered, reload `positions()`, and seek there.
        """
        if not self._identity:
            raise LakeError("the lake is not bound to a log", where=self.folder.url, hint="call bind(identity) first")
        with self._writing:
            try:
                commit_flush(self._table, rows, start, end)
            except BaseException:
                for table in self._tables.values():
                    table.forget()
                raise

    def sql(self, query: str, as_of: Mapping[str, int] | None = None, parameters: Parameters = None) -> pa.Table:
        """The result of one read-only query on the present, or on the snapshot `as_of`. Raises QueryError."""
        return self._read(query, as_of, parameters, lambda relation: relation.to_arrow_table())

    def batches(self, query: str, as_of: Mapping[str, int] | None = None, parameters: Parameters = None, *,
                rows: int = 2048) -> Iterator[pa.RecordBatch]:
        """Like `sql`, a few rows at a time, for results that do not fit into memory."""
        return iter(self._read(query, as_of, parameters, lambda relation: relation.to_arrow_reader(rows)))

    def maintain(self) -> int:
        """Merge files of one table that has too many; how many were merged. For the sink, after each flush."""
        with self._writing:
            return next((merged for table in self._tables.values() if (merged := table.compact())), 0)

    def compact(self) -> dict[str, int]:
        """Merge all small files, as far as that is good; how many, by table. Sinks may go on meanwhile."""
        names = [name for name in TABLES if table_exists(self.folder, name)]
        return {name: WriterTable(self.folder, name, self.identity).compact(everything=True) for name in names}

    def verify(self) -> list[str]:
        """Audit the lake: problems found, in words; none means that every promise holds."""
        from lake.verify import problems

        return list(problems(self))

    def _table(self, name: str) -> WriterTable:
        if name not in self._tables:
            self._tables[name] = WriterTable(self.folder, name, self._identity)
        return self._tables[name]

    def _read(self, query: str, as_of: Mapping[str, int] | None, parameters: Parameters,
              finish: Callable[[duckdb.DuckDBPyRelation], T]) -> T:
        query = read_only(query, PUBLIC)
        for attempt in range(_ATTEMPTS):
            try:
                return self._try(query, as_of, parameters, finish)
            except VanishedError as gone:
                self._reader.forget()
                if attempt == _ATTEMPTS - 1:
                    raise LakeError(f"a file of the lake cannot be read: {gone}", where=self.folder.url,
                                    hint="restore it, or move the lake away: `headrace sink` builds it anew") from None
        raise AssertionError("unreachable")

    def _try(self, query: str, as_of: Mapping[str, int] | None, parameters: Parameters,
             finish: Callable[[duckdb.DuckDBPyRelation], T]) -> T:
        import duckdb

        names = mentioned(query)
        positions: Positions = self.positions()
        if as_of is not None:
            wanted = parse_snapshot(as_of)
            require_reached(wanted, positions)
            positions = wanted
        files = self._reader.files(name.removeprefix("raw_") for name in names if name.startswith("raw_"))
        cursor = self._engine.open(statements(names, files, positions))
        try:
            with interruptible(cursor):
                return finish(run(cursor, query, parameters))
        except duckdb.InterruptException:
            raise KeyboardInterrupt from None
        except duckdb.Error as wrong:
            raise user_error(wrong, query, PUBLIC) from None
        except RuntimeError as wrong:
            if "interrupted" in str(wrong):  # DuckDB saw Ctrl-C by itself.
                raise KeyboardInterrupt from None
            raise
