"""Delta tables: how they are made and opened, and what their properties say.

Invariants: a table is append-only (compaction moves rows, nothing removes them) and keeps every commit of its log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from artifacts.folder import Folder
from lake.durable import Durable
from lake.transactions import LOG, entry_name, first_line, told
from schemas.errors import LakeError
from schemas.tables import TABLES

if TYPE_CHECKING:
    from deltalake import DeltaTable

IDENTITY_KEY = "headrace.logIdentity"
VERSION_KEY = "headrace.lakeVersion"
TABLE_KEY = "headrace.table"
LAKE_VERSION = 1
"""Raised with a change that older releases would misread or spoil. A table without the property is of version 1."""
PROPERTIES = {
    VERSION_KEY: str(LAKE_VERSION),
    "delta.appendOnly": "true",
    "delta.enableExpiredLogCleanup": "false",
    "delta.checkpointInterval": "100",
    "delta.dataSkippingStatsColumns": "topic,partition,offset",
}


REBUILD = "`headrace lake rebuild` builds the tables anew from the log"
LOST = "a table has lost rows that `events` says it holds"
_NEWER = "use the version that wrote it; nothing was written"
_READER, _WRITER = 1, 2
"""Versions of Delta's protocol that this release understands, and of its features (which replace them) these."""
_FEATURES = frozenset({"appendOnly", "invariants"})


class NewerLakeError(LakeError):
    """Nothing in it may be written, or believed."""


def table_exists(root: Folder, name: str) -> bool:
    """Raises LakeError if the storage cannot tell."""
    folder = root.at(name)
    try:
        return folder.size(f"{LOG}/{entry_name(0)}") is not None
    except OSError as wrong:
        raise LakeError(f"lake cannot be read ({wrong.strerror})", where=folder.url,
                        hint="make it readable; nothing was changed") from None


def open_table(root: Folder, name: str, version: int | None = None) -> DeltaTable:
    from deltalake import DeltaTable

    folder = root.at(name)
    with told("table cannot be opened", folder.url, "`headrace lake doctor` looks at its log"), _newer_told(folder.url):
        handle = DeltaTable(folder.url, version, storage_options=dict(folder.options))
        found = handle.protocol()
    refuse_newer_protocol({"minReaderVersion": found.min_reader_version, "minWriterVersion": found.min_writer_version,
                           "readerFeatures": found.reader_features, "writerFeatures": found.writer_features},
                          folder.url)
    refuse_foreign(handle.metadata().configuration, name, folder.url)
    return handle


@contextmanager
def _newer_told(where: str) -> Iterator[None]:
    from deltalake.exceptions import DeltaError

    try:
        yield
    except DeltaError as wrong:
        if "Unsupported" not in str(wrong):
            raise
        raise _newer(where, first_line(wrong)) from None


def _newer(where: str, value: str) -> NewerLakeError:
    return NewerLakeError("the table asks for more than this version of Headrace understands", where=where,
                          value=value, hint=_NEWER)


def refuse_foreign(properties: Mapping[str, str | None], name: str, where: str) -> None:
    """Raises LakeError for a table that a newer release made, or that lies where another one should."""
    told = properties.get(VERSION_KEY) or "1"
    if not told.isdigit() or int(told) > LAKE_VERSION:
        raise NewerLakeError("the lake was made by a newer version of Headrace", where=where,
                             value=f"{VERSION_KEY} = {told}, this version knows {LAKE_VERSION}", hint=_NEWER)
    if properties.get(TABLE_KEY, name) != name:
        raise LakeError("another table of the lake lies here", where=where, value=properties[TABLE_KEY],
                        hint=f"give the folders of the tables their names back, or {REBUILD}")


def refuse_newer_protocol(protocol: Mapping[str, Any], where: str) -> None:
    """What a newer writer switched on may change what files and entries mean: nothing is read or written then."""
    features = {*(protocol.get("readerFeatures") or ()), *(protocol.get("writerFeatures") or ())}
    reader, writer = int(protocol.get("minReaderVersion") or 0), int(protocol.get("minWriterVersion") or 0)
    if features:  # By the protocol these name all that versions 3 and 7 ask for.
        reader, writer = reader if reader != 3 else _READER, writer if writer != 7 else _WRITER
    if unknown := sorted(features - _FEATURES):
        value = f"table features {', '.join(unknown)}"
    elif reader > _READER or writer > _WRITER:
        value = f"Delta protocol {reader}, {writer}; this version knows {_READER}, {_WRITER}"
    else:
        return
    raise _newer(where, value)


def create_table(root: Folder, name: str, identity: str) -> None:
    """Make the table unless it is there. Two processes may try at once: one of them makes it."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    folder = root.at(name)
    try:
        folder.at(LOG).make()
        DeltaTable.create(folder.url, TABLES[name], mode="error", raise_if_key_not_exists=False,
                          configuration={**PROPERTIES, IDENTITY_KEY: identity, TABLE_KEY: name},
                          storage_options=dict(folder.options))
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
    return identity_in(table.metadata().configuration)


def identity_in(properties: Mapping[str, str | None]) -> str:
    """Identity of the log whose copy the table is."""
    return properties.get(IDENTITY_KEY) or ""


def add_columns(root: Folder, name: str, fields: Sequence[pa.Field]) -> None:
    """Null in all rows that are there."""
    from deltalake import Field
    from deltalake import Schema as DeltaSchema

    handle = open_table(root, name)
    added: list[Field] = list(DeltaSchema.from_arrow(pa.schema(fields)).fields)
    with told("columns cannot be added", handle.table_uri):
        handle.alter.add_columns(added)


def lost_rows(table: Folder, promised: Mapping[str, int]) -> LakeError:
    return LakeError(LOST, where=table.url, value=promised, hint=REBUILD)
