"""Before files are moved or removed, or rows are added out of turn: is the lake what the entries of its tables say?
The doctor says more; this is what may not be wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from artifacts.folder import Folder
from lake.entries import Told
from lake.files import live_files
from lake.journal import Listing, list_table, read_entry
from lake.tables import open_table, table_exists
from lake.transactions import first_line
from schemas.errors import LakeError
from schemas.tables import TABLES

if TYPE_CHECKING:
    from lake.lake import Lake

DOCTOR = "`headrace lake doctor` says which and what to do"


def require_sound(lake: Lake) -> None:
    """Raises LakeError where a table is gone, foreign, newer, has lost rows, or is not as its entries tell it."""
    lake.require_whole()
    for name in TABLES:
        if table_exists(lake.tables, name):
            told_by(lake.tables, name, list_table(lake.tables.at(name)))


def told_by(tables: Folder, name: str, listing: Listing) -> Told:
    """What the entries say was ever in the table. Raises LakeError where they cannot be believed, or a file that they
    name is not there as it was written: what was merged into it may still lie beside it."""
    folder, told, newest = tables.at(name), Told(), max(listing.entries)
    try:
        for version in range(newest + 1):
            told.add(read_entry(folder, version))
    except (OSError, ValueError, KeyError, TypeError) as wrong:
        raise LakeError(f"an entry of the table's log cannot be read ({first_line(wrong)}); nothing was changed",
                        where=folder.url, hint=DOCTOR) from None
    if told.files.keys() != {file.path for file in live_files(open_table(tables, name, newest))}:
        raise LakeError("the table's entries and its checkpoint name other files; nothing was changed",
                        where=folder.url, hint=DOCTOR)
    there = {file.name: file.size_bytes for file in listing.data}
    for path, named in told.files.items():
        if there.get(path) != named.size:
            raise LakeError("a file of the table is not as it was written; nothing was changed", hint=DOCTOR,
                            where=f"{folder.url}/{path}", value={"bytes": there.get(path), "written": named.size})
    return told
