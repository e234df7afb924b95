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
from lake import generation
from lake.commit import commit_flush
from lake.interrupt import interruptible
from lake.lease import maintenance
from lake.query import DOCTOR, Engine, Parameters, VanishedError, read_only, run, user_error
from lake.relations import statements
from lake.snapshot import Positions, SnapshotReader, parse_snapshot, require_reached, snapshot_of
from lake.tables import create_table, require_conditions, table_exists, write_checkpoint
from lake.views import PUBLIC, mentioned
from lake.writer import WriterTable
from schemas.errors import CommitConflictError, LakeError
from schemas.tables import TABLES

if TYPE_CHECKING:
    import duckdb

    from artifacts.store import ArtifactStore

_ATTEMPTS = 5
T = TypeVar("T")


class _Standing:
    """The tables under one name, as this process holds them for reading and for writing."""

    def __init__(self, name: str, folder: Folder) -> None:
        self.name, self.folder = name, folder
        self.reader = SnapshotReader(folder)
        self.writers: dict[str, WriterTable] = {}

    def writer(self, name: str, identity: str) -> WriterTable:
        if name not in self.writers:
            self.writers[name] = WriterTable(self.folder, name, identity)
        return self.writers[name]

    def forget(self) -> None:
        for table in self.writers.values():
            table.forget()


class Lake:
    def __init__(self, folder: Folder, artifacts: ArtifactStore, spill: Path, memory_mb: int = 1024) -> None:
        self.folder, self.artifacts = folder, artifacts
        self._spill, self._memory_mb = spill, memory_mb
        self._engine = Engine(folder, memory_mb, spill)
        self._identity = ""
        self._standing: _Standing | None = None
        self._following = threading.Lock()
        self._writing = threading.Lock()

    @property
    def root(self) -> Path:
        """The directory of a lake that lies in one."""
        if isinstance(self.folder, LocalFolder):
            return self.folder.path
        raise LakeError("this lake does not lie in a directory", where=self.folder.url)

    @property
    def tables(self) -> Folder:
        """Where the tables lie that are the lake now (see `lake/generation.py`)."""
        return self._follow().folder

    def beside(self, name: str) -> Lake:
        """Tables under a name of their own, as a lake: for a rebuild."""
        return Lake(self.folder.at(name), self.artifacts, self._spill / name, self._memory_mb)

    @property
    def identity(self) -> str:
        """Identity of the log that this lake is a copy of; empty before the first commit."""
        return self._identity or self._follow().reader.identity()

    def bind(self, identity: str) -> None:
        """Say which log will be written: the first one makes the lake its own. Raises LakeError for another."""
        standing = self._follow()
        if not table_exists(standing.folder, "events"):
            self._refuse_headless(standing.folder)
            create_table(standing.folder, "events", identity)
            require_conditions(standing.folder, "events")
        owner = standing.reader.identity()
        if owner != identity:
            raise LakeError("the lake is a copy of another log", where=self.folder.url,
                            value={"lake": owner, "log": identity},
                            hint="use the home that belongs to this log, or move the lake folder away to build it anew")
        standing.reader.require_whole()
        self._identity = identity

    def require_whole(self) -> None:
        """Raises LakeError where a table is gone, damaged, foreign, of a newer release, or lost rows: before anything
        is added, moved or removed."""
        standing = self._follow()
        if not table_exists(standing.folder, "events"):
            self._refuse_headless(standing.folder)
        standing.reader.require_whole()

    def unkept(self) -> list[tuple[str, str]]:
        """Tables that are not what `events` says of them, and why not."""
        return list(self._follow().reader.unkept())

    def positions(self, table: str = "events") -> dict[TopicPartition, int]:
        """Next offset by topic-partition: all before it is in the table. `events` is the lake's position."""
        return self._follow().reader.positions(table)

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
            begun = self._standing
            standing = self._follow()
            if begun not in (None, standing):
                raise CommitConflictError("the lake was built anew meanwhile", where=self.folder.url)
            try:
                commit_flush(lambda name: standing.writer(name, self._identity), rows, start, end)
            except BaseException:
                standing.forget()
                raise
            if self._follow() is not standing:  # What was written may have come too late for the new tables.
                raise CommitConflictError("the lake was built anew meanwhile", where=self.folder.url)

    def sql(self, query: str, as_of: Mapping[str, int] | None = None, parameters: Parameters = None) -> pa.Table:
        """The result of one read-only query on the present, or on the snapshot `as_of`. Raises QueryError."""
        return self._read(query, as_of, parameters, lambda relation: relation.to_arrow_table())

    def batches(self, query: str, as_of: Mapping[str, int] | None = None, parameters: Parameters = None, *,
                rows: int = 2048) -> Iterator[pa.RecordBatch]:
        """Like `sql`, a few rows at a time, for results that do not fit into memory."""
        return iter(self.reader(query, as_of, parameters, rows=rows))

    def reader(self, query: str, as_of: Mapping[str, int] | None = None, parameters: Parameters = None, *,
               rows: int = 2048) -> pa.RecordBatchReader:
        """The same with its schema, which an empty result has too."""
        return self._read(query, as_of, parameters, lambda relation: relation.to_arrow_reader(rows))

    def maintain(self) -> int:
        """Merge files of one table that has too many; how many were merged. For the sink, after each flush.

        Needs no lease: of two compactions that meet, one fails and changes nothing."""
        with self._writing:
            writers = self._follow().writers.values()
            return next((merged for table in writers if (merged := table.compact())), 0)

    def compact(self, wait_s: float = 0.0, advance: Callable[[str], None] = lambda table: None) -> dict[str, int]:
        """Merge all small files, as far as that is good, and write checkpoints; how many were merged, by table. Sinks
        may go on meanwhile. Raises LakeError while another process maintains the lake."""
        from lake.soundness import require_sound

        require_sound(self)
        with maintenance(self.folder, "compact", wait_s) as lease:
            tables, merged = self.tables, {}
            for name in TABLES:
                if table_exists(tables, name):
                    lease.check()
                    merged[name] = WriterTable(tables, name, self.identity).compact(everything=True)
                    write_checkpoint(tables, name)
                    advance(name)
            return merged

    def verify(self, contiguous: bool = True) -> list[str]:
        """Audit the lake: problems found, in words; none means that every promise holds (see `lake/verify.py`)."""
        from lake.verify import problems

        return list(problems(self, contiguous))

    def _follow(self) -> _Standing:
        """The tables that are the lake now; others than before if it was built anew."""
        name = generation.read(self.folder)[0].tables
        with self._following:
            if self._standing is None or self._standing.name != name:
                self._standing = _Standing(name, generation.tables_of(self.folder, name))
            return self._standing

    def _refuse_headless(self, tables: Folder) -> None:
        """Tables without `events`: to begin anew beside them would double or lose their rows."""
        if wrong := generation.lost(self.folder):
            raise wrong
        if left := [name for name in TABLES if table_exists(tables, name)]:
            raise LakeError("the lake's table `events` is gone", where=tables.url, value=left,
                            hint="`headrace lake rebuild` builds all tables anew from the log")

    def _read(self, query: str, as_of: Mapping[str, int] | None, parameters: Parameters,
              finish: Callable[[duckdb.DuckDBPyRelation], T]) -> T:
        query = read_only(query, PUBLIC)
        for attempt in range(_ATTEMPTS):
            try:
                return self._try(query, as_of, parameters, finish)
            except VanishedError as gone:
                self._follow().reader.forget()
                if attempt == _ATTEMPTS - 1:
                    raise LakeError(f"a file of the lake cannot be read: {gone}", where=self.folder.url,
                                    hint=DOCTOR) from None
        raise AssertionError("unreachable")

    def _try(self, query: str, as_of: Mapping[str, int] | None, parameters: Parameters,
             finish: Callable[[duckdb.DuckDBPyRelation], T]) -> T:
        import duckdb

        names = mentioned(query)
        reader = self._follow().reader
        positions: Positions = reader.positions()
        if not positions and (wrong := generation.lost(self.folder)):
            raise wrong
        if as_of is not None:
            wanted = parse_snapshot(as_of)
            require_reached(wanted, positions)
            positions = wanted
        held = reader.held(name.removeprefix("raw_") for name in names if name.startswith("raw_"))
        cursor = self._engine.open(statements(names, held, positions))
        try:
            with interruptible(cursor):
                return finish(run(cursor, query, parameters))
        except duckdb.InterruptException:
            raise KeyboardInterrupt from None
        except duckdb.Error as wrong:
            raise user_error(wrong, query, PUBLIC) from None
        except UnicodeDecodeError as wrong:  # An error of the engine whose words are bytes of a damaged file.
            raise LakeError(f"a file of the lake is damaged ({wrong.reason})", where=self.folder.url,
                            hint=DOCTOR) from None
        except RuntimeError as wrong:
            if "interrupted" in str(wrong):  # DuckDB saw Ctrl-C by itself.
                raise KeyboardInterrupt from None
            raise
