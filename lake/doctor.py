"""The doctor: what is wrong with the files of a lake, and what to do about it. It changes nothing.

`damage` keeps readers or writers from their work, or makes them believe what is not so; a `note` costs disk or time
alone. What rows say is the audit's to judge (`lake/verify.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

from artifacts.folder import Folder, Stored
from eventlog.log import TopicPartition
from lake import generation, lease
from lake.files import LiveFile, live_files
from lake.journal import Listing, list_table, read_entry
from lake.lake import Lake
from lake.tables import PROPERTIES, VERSION_KEY, identity_of, open_table, table_exists
from lake.transactions import LOG, entry_name, first_line
from lake.verify import behind
from schemas.errors import HeadraceError, LakeError
from schemas.ids import now_us
from schemas.tables import TABLES

if TYPE_CHECKING:
    from deltalake import DeltaTable

REBUILD = "`headrace lake rebuild` builds the table anew from the log"
_YOUNG_US = 3600 * 1_000_000


class Finding(NamedTuple):
    severity: Literal["damage", "note"]
    where: str
    what: str
    action: str


def examine(lake: Lake, log_identity: str = "", log_ends: Mapping[TopicPartition, int] | None = None,
            advance: Callable[[str], None] = lambda table: None) -> list[Finding]:
    """All findings. With the log's identity and ends, the lake is compared with it too."""
    try:
        tables = lake.tables
    except LakeError as wrong:
        return [Finding("damage", lake.folder.url, str(wrong), wrong.hint)]
    found: list[Finding] = []
    sound = True
    owner = _owner(tables)
    for name in TABLES:
        of_table = list(_of_table(tables, name, owner))
        sound &= all(finding.severity == "note" for finding in of_table)
        found += of_table
        advance(name)
    found += _of_whole(lake, tables, log_identity)
    if sound and table_exists(tables, "events"):
        found += _of_positions(lake, log_ends or {})
    return found


def _owner(tables: Folder) -> str:
    try:
        return identity_of(open_table(tables, "events")) if table_exists(tables, "events") else ""
    except LakeError:
        return ""


def _of_table(tables: Folder, name: str, owner: str) -> Iterator[Finding]:
    folder = tables.at(name)
    try:
        listing = list_table(folder)
    except OSError as wrong:
        yield Finding("damage", name, f"cannot be listed: {wrong.strerror}", "make the storage readable again")
        return
    if not listing.entries and not listing.data:
        return
    broken: list[int] = []
    yield from _of_log(folder, name, listing, broken)
    try:
        handle = open_table(tables, name)
    except LakeError as wrong:
        yield Finding("damage", name, str(wrong), wrong.hint if "newer" in str(wrong) else REBUILD)
        return
    yield from _of_properties(handle, name, owner)
    yield from _of_files(folder, name, live_files(handle), listing, broken)


def _of_log(folder: Folder, name: str, listing: Listing, broken: list[int]) -> Iterator[Finding]:
    newest = max([*listing.entries, *listing.checkpoints], default=-1)
    for version in range(newest + 1):
        where = f"{name}/{LOG}/{entry_name(version)}"
        if version not in listing.entries:
            broken.append(version)
            yield Finding("damage", where, "the entry of the table's log is missing", f"restore the file, or {REBUILD}")
            continue
        try:
            read_entry(folder, version)
        except (OSError, ValueError) as wrong:
            broken.append(version)
            yield Finding("damage", where, f"the entry of the table's log cannot be read ({first_line(wrong)})",
                          f"restore the file, or {REBUILD}")
    yield from _of_checkpoints(folder, name, listing)


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
                      f"{owner or '(none)'}", REBUILD)
    for key, wanted in PROPERTIES.items():
        if key != VERSION_KEY and properties.get(key) != wanted:
            yield Finding("damage", name, f"property {key} is {properties.get(key)!r} instead of {wanted!r}",
                          "set it back: without it entries of the log or rows may be removed")


def _of_files(folder: Folder, name: str, live: list[LiveFile], listing: Listing,
              broken: list[int]) -> Iterator[Finding]:
    there = {file.name: file for file in listing.data}
    for file in live:
        where, stored = f"{name}/{file.path}", there.get(file.path)
        if stored is None:
            yield Finding("damage", where, f"the file is missing, and {file.rows} rows with it",
                          f"restore the file, or {REBUILD}")
        elif stored.size_bytes != file.size:
            kind = "truncated" if stored.size_bytes < file.size else "of another size"
            yield Finding("damage", where, f"the file is {kind}: {stored.size_bytes} bytes instead of {file.size}",
                          f"restore the file, or {REBUILD}")
        elif wrong := _unreadable(folder, file.path, file.rows):
            yield Finding("damage", where, f"the file cannot be read ({wrong})", f"restore the file, or {REBUILD}")
    if broken:
        return  # What was once in the table cannot be told.
    known = {file.path for file in live} | _once(folder, listing)
    for orphan in [file for file in listing.data if file.name not in known] + listing.parts:
        yield _orphan(name, orphan)


def _orphan(name: str, file: Stored) -> Finding:
    young = now_us() - file.modified < _YOUNG_US
    return Finding("note", f"{name}/{file.name}", f"an orphan: no commit names its {file.size_bytes} bytes",
                   "a writer may be at it now; else `headrace lake vacuum` removes it in time" if young else
                   "left by a writer that died; nobody reads it, `headrace lake vacuum` removes it in time")


def _once(folder: Folder, listing: Listing) -> set[str]:
    """Files that were in the table and are not any more: readers may still hold them."""
    return {action["remove"]["path"] for version in listing.entries for action in read_entry(folder, version)
            if "remove" in action}


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


def _of_whole(lake: Lake, tables: Folder, log_identity: str) -> Iterator[Finding]:
    if wrong := generation.lost(lake.folder):
        yield Finding("damage", generation.POINTER, str(wrong), wrong.hint)
    left = [name for name in TABLES if name != "events" and table_exists(tables, name)]
    if left and not table_exists(tables, "events"):
        yield Finding("damage", "events", f"the table is gone, but there are {', '.join(left)}",
                      "`headrace lake rebuild` builds all tables anew from the log")
    owner = _owner(tables)
    if owner and log_identity and owner != log_identity:
        yield Finding("damage", tables.url, f"is a copy of log {owner}, and this home's log is {log_identity}",
                      "name the --home or --log that belong together")
    held, _ = lease.read(lake.folder)
    if held.owner and held.over(lease.TERM_S):
        yield Finding("note", lease.FILE, f"{held.task} by {held.owner} died",
                      "nothing: the next maintenance takes over")
    for past in generation.read(lake.folder)[0].before:
        yield Finding("note", generation.tables_of(lake.folder, past.tables).url,
                      "the lake of before a rebuild is kept",
                      "`headrace lake rebuild --discard-old` removes it, `--undo` goes back to it")


def _of_positions(lake: Lake, log_ends: Mapping[TopicPartition, int]) -> Iterator[Finding]:
    at = lake.positions()
    for part, position in sorted(at.items()):
        if log_ends and position > log_ends.get(part, 0):
            yield Finding("damage", f"{part[0]}-{part[1]}", f"the lake is at {position}, the log ends at "
                          f"{log_ends.get(part, 0)}: it lost its end", "restore the log; the lake has what it lost")
    if waiting := sum(max(0, end - at.get(part, 0)) for part, end in log_ends.items()):
        yield Finding("note", lake.folder.url, f"{waiting} events of the log are not in the lake yet",
                      "`headrace sink --until-idle` copies them")
    for name in TABLES:
        ahead = {part: end for part, end in lake.positions(name).items() if end > at.get(part, 0)}
        if name != "events" and ahead:
            yield Finding("note", name, "is ahead of `events`: a flush is under way, or died between two tables",
                          "nothing: the next flush goes on there, and readers see neither")
    try:
        for table, missing in behind(lake):
            yield Finding("damage", table, f"is behind `events`: {missing} events have no row in it",
                          "`headrace lake verify` names them; " + REBUILD)
    except HeadraceError as wrong:
        yield Finding("damage", lake.folder.url, str(wrong), wrong.hint or REBUILD)
