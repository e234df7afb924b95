"""A table in the hands of a sink: one `WriterTable` per event family, made when it first has rows.

Positions are those at exactly the version of its log that the table stands at, so that a commit is a compare-and-set.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from artifacts.folder import Folder
from eventlog.log import TopicPartition
from lake.compaction import all_small, due, merge
from lake.files import add_action, spans_of, write_file
from lake.tablelog import TableLog
from lake.tables import add_columns, create_table, lost_rows, table_exists
from lake.transactions import application, first_line, promise
from schemas.errors import CommitConflictError, LakeError
from schemas.failpoints import hit
from schemas.tables import TABLES


class WriterTable:
    """Not thread-safe. After an exception it forgets all and opens anew."""

    def __init__(self, root: Folder, name: str, identity: str) -> None:
        self.name, self.folder = name, root.at(name)
        self._root, self._identity = root, identity
        self._log: TableLog | None = None

    def log(self) -> TableLog:
        if self._log is None:
            if not table_exists(self._root, self.name):
                create_table(self._root, self.name, self._identity)
            self._log = TableLog(self._root, self.name)
            missing = [field for field in TABLES[self.name] if field.name not in self._log.columns]
            if missing:
                add_columns(self._root, self.name, missing)
                self._log.follow()
        return self._log

    def forget(self) -> None:
        self._log = None

    def position(self, partition: TopicPartition) -> int | None:
        """Next offset at the log's version; None if no row of the partition was ever written."""
        return self.log().transactions.get(application(self._identity, partition))

    def promised(self, table: str, partition: TopicPartition) -> int:
        """How far `events` (this table) says another one is."""
        return self.log().transactions.get(promise(self._identity, table, partition), 0)

    def require(self, promised: Mapping[TopicPartition, int]) -> None:
        """Raises LakeError if rows of this table are lost that `events` says were there."""
        lost = {f"{part[0]}-{part[1]}": offset for part, offset in promised.items() if offset}
        if lost and ((self._log is None and not table_exists(self._root, self.name))
                     or any((self.position(part) or 0) < offset for part, offset in promised.items())):
            raise lost_rows(self.folder, lost)

    def append(self, rows: pa.Table, ends: Mapping[TopicPartition, int],
               promises: Mapping[str, Mapping[TopicPartition, int]] | None = None) -> None:
        """Write rows and move the positions to `ends` in one commit, if nobody moved them since. With it goes what
        other tables hold, by name. Durable on return.

        Raises CommitConflictError if somebody did; LakeError if the outcome is unknown.
        """
        log, actions = self.log(), []
        said = {promise(self._identity, table, part): offset
                for table, held in (promises or {}).items() for part, offset in held.items()}
        said |= {application(self._identity, part): end for part, end in ends.items()}
        if rows.num_rows:
            file = write_file(self.folder, rows)
            hit("sink:after_data_file")
            actions.append(add_action(file, spans_of(rows), data_change=True))
        log.commit(actions, said)
        hit("sink:after_log_entry")

    def compact(self, everything: bool = False) -> int:
        """Merge files of a tier that is too full, or all small ones; how many. 0 if somebody else did it just now."""
        log = self.log()
        files = all_small(log.files) if everything else due(log.files)
        if not files:
            return 0
        try:
            merge(log, files)
        except CommitConflictError:
            self.forget()
            return 0
        except (OSError, pa.ArrowException) as wrong:
            self.forget()
            raise LakeError(f"compaction failed and changed nothing ({first_line(wrong)})", where=self.folder.url,
                            hint="`headrace lake doctor` says what is wrong with the table") from None
        return len(files)
