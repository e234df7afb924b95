"""One table examined: the entries of its log, its checkpoints, its properties, its files. It changes nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

from artifacts.folder import Folder, Stored
from lake.entries import Told
from lake.files import live_files
from lake.journal import Listing, list_table, read_entry
from lake.tables import IDENTITY_KEY, PROPERTIES, VERSION_KEY, NewerLakeError, identity_of, open_table, table_exists
from lake.transactions import LOG, entry_name, first_line
from schemas.errors import LakeError
from schemas.ids import now_us

if TYPE_CHECKING:
    from deltalake import DeltaTable

REBUILD = "`headrace lake rebuild` builds the table anew from the log"
_RESTORE = f"restore the file, or {REBUILD}"
_YOUNG_US = 3600 * 1_000_000
_CHUNK_BYTES = 8 << 20


class Finding(NamedTuple):
    severity: Literal["damage", "note"]
    where: str
    what: str
    action: str


def of_table(tables: Folder, name: str, owner: str) -> Iterator[Finding]:
    """`owner`: identity of the log that the lake is a copy of; empty where that cannot be told."""
    folder = tables.at(name)
    try:
        table_exists(tables, name)
        listing = list_table(folder)
    except (LakeError, OSError) as wrong:
        yield Finding("damage", name, f"cannot be listed ({first_line(wrong)})", "make the storage readable again")
        return
    if not listing.entries and not listing.data:
        return
    told = Told()
    broken = list(_of_entries(folder, name, listing, told))
    yield from broken
    yield from _of_checkpoints(folder, name, listing)
    try:
        handle = open_table(tables, name)
        if not broken:
            for difference in told.against(folder, handle):
                yield Finding("damage", f"{name}/{LOG}", f"an entry or checkpoint was changed: {difference}", _RESTORE)
    except LakeError as wrong:
        yield Finding("damage", name, str(wrong), wrong.hint if isinstance(wrong, NewerLakeError) else REBUILD)
        return
    yield from _of_properties(handle, name, owner)
    yield from _of_files(folder, name, handle, listing, told, bool(broken))


def _of_entries(folder: Folder, name: str, listing: Listing, told: Told) -> Iterator[Finding]:
    newest = max([*listing.entries, *listing.checkpoints], default=-1)
    for version in range(newest + 1):
        where = f"{name}/{LOG}/{entry_name(version)}"
        if version not in listing.entries:
            yield Finding("damage", where, "the entry of the table's log is missing", _RESTORE)
            continue
        try:
            told.add(read_entry(folder, version))
        except (OSError, ValueError, KeyError, TypeError) as wrong:
            yield Finding("damage", where, f"the entry of the table's log cannot be read ({first_line(wrong)})",
                          _RESTORE)


def _of_checkpoints(folder: Folder, name: str, listing: Listing) -> Iterator[Finding]:
    for version, file in sorted(listing.checkpoints.items()):
        if wrong := _unreadable(folder, file.name):
            yield Finding("damage", f"{name}/{file.name}", f"the checkpoint cannot be read ({wrong})",
                          f"remove it and {name}/{LOG}/_last_checkpoint: the entries before version {version} are all "
                          "there, and the next compaction writes another")
    try:
        last = json.loads(folder.read(f"{LOG}/_last_checkpoint"))["version"]
        if last not in listing.checkpoints:
            yield Finding("damage", f"{name}/{LOG}/_last_checkpoint", f"names checkpoint {last}, which is not there",
                          "remove the file: the table opens from its entries")
    except FileNotFoundError:
        pass
    except (OSError, ValueError, KeyError, TypeError) as wrong:
        yield Finding("damage", f"{name}/{LOG}/_last_checkpoint", f"cannot be read ({first_line(wrong)})",
                      "remove the file: the table opens from its entries")


def _of_properties(handle: DeltaTable, name: str, owner: str) -> Iterator[Finding]:
    properties = handle.metadata().configuration
    if owner and identity_of(handle) != owner:
        yield Finding("damage", name, f"is a copy of log {identity_of(handle) or '(none)'}, but `events` of "
                      f"{owner or '(none)'}", f"if it was put here, put the right one back; if its property "
                      f"{IDENTITY_KEY} was changed, set it back; or {REBUILD}")
    for key, wanted in PROPERTIES.items():
        if key != VERSION_KEY and properties.get(key) != wanted:
            yield Finding("damage", name, f"property {key} is {properties.get(key)!r} instead of {wanted!r}",
                          "set it back: without it entries of the log or rows may be removed")


def _of_files(folder: Folder, name: str, handle: DeltaTable, listing: Listing, told: Told,
              broken: bool) -> Iterator[Finding]:
    there, live = {file.name: file for file in listing.data}, live_files(handle)
    for file in live:
        where, stored = f"{name}/{file.path}", there.get(file.path)
        digest = told.files[file.path].digest if file.path in told.files else ""
        if stored is None:
            yield Finding("damage", where, f"the file is missing, and {file.rows} rows with it", _RESTORE)
        elif stored.size_bytes != file.size:
            kind = "truncated" if stored.size_bytes < file.size else "of another size"
            yield Finding("damage", where, f"the file is {kind}: {stored.size_bytes} bytes instead of {file.size}",
                          _RESTORE)
        elif wrong := _unreadable(folder, file.path, file.rows):
            yield Finding("damage", where, f"the file cannot be read ({wrong})", _RESTORE)
        elif digest and (found := _digest(folder, file.path)) != digest:
            yield Finding("damage", where, f"the file is not as it was written: digest {found} instead of {digest}",
                          _RESTORE)
    if broken:
        return  # What was once in the table cannot be told.
    known = {file.path for file in live} | told.once.keys()
    for orphan in [file for file in listing.data if file.name not in known] + listing.parts:
        yield _orphan(name, orphan)


def _orphan(name: str, file: Stored) -> Finding:
    young = now_us() - file.modified < _YOUNG_US
    return Finding("note", f"{name}/{file.name}", f"an orphan: no commit names its {file.size_bytes} bytes",
                   "a writer may be at it now; else `headrace lake vacuum` removes it in time" if young else
                   "left by a writer that died; nobody reads it, `headrace lake vacuum` removes it in time")


def _unreadable(folder: Folder, name: str, rows: int | None = None) -> str:
    """Why a Parquet file is none, in words; empty if it is one. Reads its end only."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with folder.reader(name) as file:
            told = pq.ParquetFile(file).metadata.num_rows
    except (OSError, pa.ArrowException) as wrong:
        return first_line(wrong)
    return f"{told} rows instead of {rows}" if rows is not None and told != rows else ""


def _digest(folder: Folder, name: str) -> str:
    seen = hashlib.sha256()
    with folder.reader(name) as file:
        while chunk := file.read(_CHUNK_BYTES):
            seen.update(chunk)
    return f"sha256:{seen.hexdigest()}"
