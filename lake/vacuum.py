"""Vacuum: files that the lake no longer needs are removed, once nobody can be at them any more.

Needed are: live files; files that left their table within the retention (a reader may be in the middle of them); files
younger than the retention, for a writer names its file in a commit only after it is whole. Entries of a table's log are
never removed. A snapshot is an offset vector and is read from live files, so none is lost.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import NamedTuple

from artifacts.folder import Folder
from artifacts.local_folder import LocalFolder
from lake import generation
from lake.files import live_files
from lake.journal import list_table
from lake.lake import Lake
from lake.lease import Lease, maintenance
from lake.soundness import require_sound, told_by
from lake.tables import open_table, table_exists
from schemas.errors import LakeError, UserError
from schemas.ids import now_us
from schemas.tables import TABLES

RETENTION_S = 7 * 86_400.0
SHORTEST_S = 3600.0
"""Less is refused: a writer or a reader that is at work may need files that are so young."""


class Unneeded(NamedTuple):
    table: str
    file: str
    size_bytes: int
    modified: int
    why: str


def vacuum(lake: Lake, retention_s: float = RETENTION_S, *, dry_run: bool = False, alone: bool = False,
           wait_s: float = 0.0, advance: Callable[[str], None] = lambda table: None) -> list[Unneeded]:
    """What was removed, or would be. `alone` says that nothing else reads or writes, so that any retention will do."""
    if retention_s < SHORTEST_S and not alone:
        raise UserError("a shorter retention than an hour removes files that are in use", value=f"{retention_s:g} s",
                        hint="say --alone if nothing else reads or writes this lake now")
    require_sound(lake)
    with maintenance(lake.folder, "vacuum", wait_s) as lease:
        before = now_us() - int(retention_s * 1e6)
        found: list[Unneeded] = []
        try:
            for name in TABLES:
                if table_exists(lake.tables, name):
                    found += _of_table(lake.tables, name, before, lease, dry_run)
                    advance(name)
            found += _of_past(lake.folder, before, lease, dry_run)
        except OSError as wrong:
            raise LakeError(f"vacuum failed ({wrong.strerror})", where=lake.folder.url,
                            hint="what it removed was not needed; try again") from None
        return found


def _of_table(tables: Folder, name: str, before: int, lease: Lease, dry_run: bool) -> list[Unneeded]:
    folder = tables.at(name)
    listing = list_table(folder)  # Before the table is opened: a file that is committed in between is live then.
    told = told_by(tables, name, listing)
    live = {file.path for file in live_files(open_table(tables, name))} | told.files.keys()
    unneeded = [Unneeded(name, file.name, file.size_bytes, file.modified, why) for files, why in (
        (listing.data, "not in the table"), (listing.parts, "left by a writer that died")) for file in files
        if file.name not in live and file.modified < before and told.once.get(file.name, 0) < before]
    for number, file in enumerate(() if dry_run else unneeded):
        if number % 100 == 0:
            lease.check()
        folder.remove(file.file)
    return unneeded


def _of_past(folder: Folder, before: int, lease: Lease, dry_run: bool) -> Iterator[Unneeded]:
    for past in generation.read(folder)[0].before:
        if past.until < before:
            yield from discard(folder, past.tables, lease, dry_run)


def discard(folder: Folder, past: str, lease: Lease, dry_run: bool = False) -> Iterator[Unneeded]:
    """The tables of before a rebuild, whole."""
    if past == generation.read(folder)[0].tables:
        raise LakeError("these tables are the lake", where=folder.url, value=past)
    tables = generation.tables_of(folder, past)
    for name in TABLES:
        table = tables.at(name)
        for file in list(table.list()):
            yield Unneeded(name, f"{past}/{name}/{file.name}".lstrip("/"), file.size_bytes, file.modified,
                           "of the lake before a rebuild")
            if not dry_run:
                table.remove(file.name)
        if not dry_run:
            lease.check()
            if isinstance(table, LocalFolder):
                shutil.rmtree(table.path, ignore_errors=True)
    if not dry_run:
        if past and isinstance(tables, LocalFolder):
            shutil.rmtree(tables.path, ignore_errors=True)
        generation.forget(folder, past)
