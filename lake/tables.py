"""Delta tables: how they are made and opened, and what their properties say.

Invariants: a table is append-only (compaction moves rows, nothing removes them) and keeps every commit of its log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

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
    refuse_newer(handle.metadata().configuration, folder.url)
    return handle


def refuse_newer(properties: Mapping[str, str | None], where: str) -> None:
    told = properties.get(VERSION_KEY) or "1"
    if not told.isdigit() or int(told) > LAKE_VERSION:
        raise NewerLakeError("the lake was made by a newer version of Headrace", where=where,
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
    return LakeError("a table has lost rows that `events` says it holds", where=table.url, value=promised,
                     hint="`headrace lake rebuild` builds the tables anew from the log")
