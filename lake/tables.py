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
from lake.files import LiveFile, add_action, live_files, spans_of, write_file
from lake.transactions import LOG, application, commit, entry_name, first_line
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


def open_table(root: Folder, name: str) -> DeltaTable:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    folder = root.at(name)
    try:
        handle = DeltaTable(folder.url, storage_options=dict(folder.options))
    except (DeltaError, OSError) as wrong:
        raise LakeError(f"table cannot be opened ({first_line(wrong)})", where=folder.url,
                        hint="`headrace lake doctor` looks at its log") from None
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
        folder.make()
        DeltaTable.create(folder.url, TABLES[name], mode="error", raise_if_key_not_exists=False,
                          configuration={**PROPERTIES, IDENTITY_KEY: identity}, storage_options=dict(folder.options))
    except (DeltaError, OSError) as wrong:
        if not table_exists(root, name):
            raise LakeError(f"table cannot be made ({first_line(wrong)})", where=folder.url,
                            hint="choose a writable --home with free space") from None


def write_checkpoint(root: Folder, name: str) -> None:
    """So that the table opens fast. Entries of its log stay, all of them."""
    from deltalake.exceptions import DeltaError

    try:
        open_table(root, name).create_checkpoint()
    except (DeltaError, OSError) as wrong:
        raise LakeError(f"checkpoint cannot be written ({first_line(wrong)})", where=root.at(name).url) from None


def identity_of(table: DeltaTable) -> str:
    return table.metadata().configuration.get(IDENTITY_KEY) or ""


class WriterTable:
    """One table in the hands of a sink. Not thread-safe. After an exception it forgets all and opens anew."""

    def __init__(self, root: Folder, name: str, identity: str) -> None:
        self.name, self.folder = name, root.at(name)
        self._root, self._identity = root, identity
        self._handle: DeltaTable | None = None
        self._positions: dict[TopicPartition, int | None] = {}
        self._files: list[LiveFile] = []

    def handle(self) -> DeltaTable:
        if self._handle is None:
            if not table_exists(self._root, self.name):
                create_table(self._root, self.name, self._identity)
            self._handle = open_table(self._root, self.name)
            self._take_on(self._handle)
        return self._handle

    def forget(self) -> None:
        self._handle = None
        self._positions = {}

    def position(self, partition: TopicPartition) -> int | None:
        """Next offset at the handle's version; None if no row of the partition was ever written."""
        handle = self.handle()
        if partition not in self._positions:
            self._positions[partition] = handle.transaction_version(application(self._identity, partition))
        return self._positions[partition]

    def append(self, rows: pa.Table, ends: Mapping[TopicPartition, int]) -> None:
        """Write rows and move the positions to `ends` in one commit, if nobody moved them since the handle's version.

        Raises CommitConflictError if somebody did; LakeError if the outcome is unknown.
        """
        from deltalake import Transaction

        handle = self.handle()
        before, actions = handle.version(), []
        if rows.num_rows:
            name, size = write_file(self.folder, rows)
            hit("sink:after_data_file")
            actions.append(add_action(name, size, rows.num_rows, spans_of(rows), data_change=True))
        commit(handle, actions, [Transaction(application(self._identity, part), end) for part, end in ends.items()])
        if self._alone_since(before):
            self._positions.update(ends)
            self._files += [LiveFile(action.path, action.size, rows.num_rows) for action in actions]

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
        if self._alone_since(before):
            self._files = live_files(handle)
        return len(files)

    def _alone_since(self, version: int) -> bool:
        """Move the handle to the present. If others committed too, whatever was remembered may be old, and this handle
        would not notice any more: forget it all."""
        handle = self.handle()
        handle.update_incremental()
        if handle.version() == version + 1:
            return True
        self.forget()
        return False

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
    handle.alter.add_columns(added)
