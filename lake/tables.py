"""Delta tables as their writer holds them: one `WriterTable` per event family, made when it first has rows.

Invariants: a table is append-only (compaction moves rows, nothing removes them) and keeps every commit of its log;
positions are those at exactly the version of the handle, so that writing with this handle is a compare-and-set.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from artifacts.folder import Folder
from eventlog.log import TopicPartition
from lake.compaction import all_small, due, merge
from lake.durable import Durable
from lake.files import LiveFile, add_action, live_files, spans_of, write_file
from lake.transactions import (
    LOG,
    Transactions,
    application,
    commit,
    entry_name,
    first_line,
    promise,
    read_transactions,
    told,
)
from schemas.errors import CommitConflictError, LakeError
from schemas.failpoints import hit
from schemas.tables import TABLES

if TYPE_CHECKING:
    from deltalake import DeltaTable

IDENTITY_KEY = "headrace.logIdentity"
VERSION_KEY = "headrace.lakeVersion"
LAKE_VERSION = 1
"""Raised with a change that older releases would misread or spoil. A table without the property is of version 1."""
PROPERTIES = {
    VERSION_KEY: str(LAKE_VERSION),
    "delta.appendOnly": "true",
    "delta.enableExpiredLogCleanup": "false",
    "delta.checkpointInterval": "100",
    "delta.dataSkippingStatsColumns": "topic,partition,offset",
}


class NewerLakeError(LakeError):
    """Nothing in it may be written, or believed."""


def table_exists(root: Folder, name: str) -> bool:
    """Raises LakeError if the storage cannot tell."""
    folder = root.at(name)
    try:
        return folder.size(f"{LOG}/{entry_name(0)}") is not None
    except OSError as wrong:
        raise LakeError(f"lake cannot be read ({wrong.strerror})", where=folder.url) from None


def open_table(root: Folder, name: str, version: int | None = None) -> DeltaTable:
    from deltalake import DeltaTable

    folder = root.at(name)
    with told("table cannot be opened", folder.url, "`headrace lake doctor` looks at its log"):
        handle = DeltaTable(folder.url, version, storage_options=dict(folder.options))
    _refuse_newer(handle)
    return handle


def _refuse_newer(handle: DeltaTable) -> None:
    told = handle.metadata().configuration.get(VERSION_KEY) or "1"
    if not told.isdigit() or int(told) > LAKE_VERSION:
        raise NewerLakeError("the lake was made by a newer version of Headrace", where=handle.table_uri,
                        value=f"{VERSION_KEY} = {told}, this version knows {LAKE_VERSION}",
                        hint="use that version; nothing was written")


def create_table(root: Folder, name: str, identity: str) -> None:
    """Make the table unless it is there. Two processes may try at once: one of them makes it."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    folder = root.at(name)
    try:
        folder.at(LOG).make()
        DeltaTable.create(folder.url, TABLES[name], mode="error", raise_if_key_not_exists=False,
                          configuration={**PROPERTIES, IDENTITY_KEY: identity}, storage_options=dict(folder.options))
    except (DeltaError, OSError) as wrong:
        if not table_exists(root, name):
            raise LakeError(f"table cannot be made ({first_line(wrong)})", where=folder.url,
                            hint="choose a writable --home with free space") from None


def require_conditions(root: Folder, name: str) -> None:
    """Raises LakeError for storage that would let two writers of one commit both win."""
    folder, first = root.at(name), f"{LOG}/{entry_name(0)}"
    with told("table cannot be read", folder.url):
        overwritten = folder.create(first, folder.read(first))  # With its own bytes: harmless.
    if overwritten:
        raise LakeError("the storage overwrites files where it was asked to make new ones only", where=folder.url,
                        hint="use S3-compatible storage that heeds If-None-Match (conditional writes)")


def write_checkpoint(root: Folder, name: str) -> None:
    """So that the table opens fast. Entries of its log stay, all of them."""
    handle, folder = open_table(root, name), root.at(name)
    with told("checkpoint cannot be written", folder.url):
        handle.create_checkpoint()
    Durable(folder).reach(handle.version())


def identity_of(table: DeltaTable) -> str:
    return table.metadata().configuration.get(IDENTITY_KEY) or ""


def lost_rows(table: Folder, promised: Mapping[str, int]) -> LakeError:
    return LakeError("a table has lost rows that `events` says it holds", where=table.url, value=promised,
                     hint="`headrace lake rebuild` builds the tables anew from the log")


class WriterTable:
    """One table in the hands of a sink. Not thread-safe. After an exception it forgets all and opens anew."""

    def __init__(self, root: Folder, name: str, identity: str) -> None:
        self.name, self.folder = name, root.at(name)
        self._root, self._identity = root, identity
        self._handle: DeltaTable | None = None
        self._known: Transactions | None = None
        """At the handle's version."""
        self._files: list[LiveFile] = []
        self._durable = Durable(self.folder)

    def handle(self) -> DeltaTable:
        if self._handle is None:
            if not table_exists(self._root, self.name):
                create_table(self._root, self.name, self._identity)
            self._handle = open_table(self._root, self.name)
            self._take_on(self._handle)
            self._durable.reach(self._handle.version())
        return self._handle

    def forget(self) -> None:
        self._handle = self._known = None

    def position(self, partition: TopicPartition) -> int | None:
        """Next offset at the handle's version; None if no row of the partition was ever written."""
        return self._transactions().entries.get(application(self._identity, partition))

    def promised(self, table: str, partition: TopicPartition) -> int:
        """How far `events` (this table) says another one is."""
        return self._transactions().entries.get(promise(self._identity, table, partition), 0)

    def require(self, promised: Mapping[TopicPartition, int]) -> None:
        """Raises LakeError if rows of this table are lost that `events` says were there."""
        lost = {f"{part[0]}-{part[1]}": offset for part, offset in promised.items() if offset}
        if lost and ((self._handle is None and not table_exists(self._root, self.name))
                     or any((self.position(part) or 0) < offset for part, offset in promised.items())):
            raise lost_rows(self.folder, lost)

    def append(self, rows: pa.Table, ends: Mapping[TopicPartition, int],
               promises: Mapping[str, Mapping[TopicPartition, int]] | None = None) -> None:
        """Write rows and move the positions to `ends` in one commit, if nobody moved them since the handle's version.
        With it goes what other tables hold, by name. Safe from a power cut after `settle`.

        Raises CommitConflictError if somebody did; LakeError if the outcome is unknown.
        """
        from deltalake import Transaction

        handle = self.handle()
        before, known, actions = handle.version(), self._transactions(), []
        self._require_log(before)
        said = {promise(self._identity, table, part): offset
                for table, held in (promises or {}).items() for part, offset in held.items()}
        said |= {application(self._identity, part): end for part, end in ends.items()}
        if rows.num_rows:
            name, size = write_file(self.folder, rows)
            hit("sink:after_data_file")
            actions.append(add_action(name, size, rows.num_rows, spans_of(rows), data_change=True))
        commit(handle, actions, [Transaction(name, version) for name, version in said.items()])
        hit("sink:after_log_entry")
        if self._alone_since(before):
            self._known = Transactions(before + 1, {**known.entries, **said})
            self._files += [LiveFile(action.path, action.size, rows.num_rows) for action in actions]

    def settle(self) -> None:
        """Make durable what was committed. Several tables may settle at the same time."""
        self._durable.reach(self.handle().version())

    def _require_log(self, version: int) -> None:
        """The table may have been deleted under this handle: it would go on beside what is no table any more."""
        with told("table cannot be read", self.folder.url):
            size = self.folder.size(f"{LOG}/{entry_name(version)}")
        if size is None:
            raise LakeError("the table is gone", where=self.folder.url,
                            hint="`headrace lake rebuild` builds the tables anew from the log")

    def compact(self, everything: bool = False) -> int:
        """Merge files of a tier that is too full, or all small ones; how many. 0 if somebody else did it just now."""
        handle = self.handle()
        before, files = handle.version(), all_small(self._files) if everything else due(self._files)
        if not files:
            return 0
        try:
            merge(handle, self.folder, files)
        except CommitConflictError:
            self.forget()
            return 0
        except (OSError, pa.ArrowException) as wrong:
            self.forget()
            raise LakeError(f"compaction failed and changed nothing ({first_line(wrong)})", where=self.folder.url,
                            hint="`headrace lake doctor` says what is wrong with the table") from None
        if self._alone_since(before):
            self._files = live_files(handle)
        self.settle()
        return len(files)

    def _alone_since(self, version: int) -> bool:
        """Move the handle to the present. If others committed too, whatever was remembered may be old, and this handle
        would not notice any more: ask it all again."""
        handle = self.handle()
        with told("table cannot be read", self.folder.url):
            handle.update_incremental()
        if handle.version() == version + 1:
            return True
        self._files = live_files(handle)
        return False

    def _transactions(self) -> Transactions:
        """The library reads its whole log again for each application that it is asked about."""
        handle = self.handle()
        if self._known is None or self._known.version < handle.version():
            self._known = read_transactions(self.folder.at(LOG), handle.version(), self._known)
        return self._known

    def _take_on(self, handle: DeltaTable) -> None:
        have = {field.name for field in handle.schema().fields}
        missing = [field for field in TABLES[self.name] if field.name not in have]
        if missing:
            _add_columns(handle, missing)
        self._files = live_files(handle)


def _add_columns(handle: DeltaTable, fields: list[pa.Field]) -> None:
    from deltalake import Field
    from deltalake import Schema as DeltaSchema

    added: list[Field] = list(DeltaSchema.from_arrow(pa.schema(fields)).fields)
    with told("columns cannot be added", handle.table_uri):
        handle.alter.add_columns(added)
