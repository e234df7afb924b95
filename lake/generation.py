"""Which tables are the lake: those in its folder, or those of a rebuild, which lie beside them under their own name.

`current.json` in the lake's folder names them and is changed by compare-and-set alone, so a rebuild takes effect at one
moment, for every process, and can be undone. Nothing in the old tables is touched by it: a reader in the middle of a
query ends it, and what a writer still adds to them is in the log, so it is added to the new ones too.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from artifacts.folder import Folder
from lake.tables import table_exists
from schemas.errors import LakeError
from schemas.ids import now_us
from schemas.tables import TABLES

POINTER = "current.json"
BUILDING = "rebuild.json"
"""Names the tables of a rebuild that is under way."""
_AGAIN = "restore it, or `headrace lake rebuild` builds the lake anew from the log"
_NAME = re.compile(r"(tables-[0-9a-zA-Z-]+)?")
"""What a rebuild calls its tables: a folder in the lake's own."""


class Past(msgspec.Struct, frozen=True):
    """Tables that were the lake until then. The empty name is the lake's folder itself."""

    tables: str
    until: int


class Pointer(msgspec.Struct, frozen=True):
    tables: str = ""
    before: list[Past] = []
    """The newest first."""


def read(folder: Folder) -> tuple[Pointer, bytes | None]:
    """The pointer and its bytes; raises LakeError if it cannot be read."""
    try:
        data = folder.read(POINTER)
    except FileNotFoundError:
        return Pointer(), None
    except OSError as wrong:
        raise LakeError(f"lake cannot be read ({wrong.strerror})", where=folder.url) from None
    try:
        pointer = msgspec.json.decode(data, type=Pointer)
        if wrong_name := next((name for name in (pointer.tables, *(past.tables for past in pointer.before))
                               if not _NAME.fullmatch(name)), ""):
            raise msgspec.ValidationError(f"{wrong_name!r} is no name of tables")
        return pointer, data
    except msgspec.MsgspecError as wrong:
        raise LakeError(f"the file that names the lake's tables is damaged ({wrong})", where=f"{folder.url}/{POINTER}",
                        hint="restore it; it names a folder beside it") from None


def tables_of(folder: Folder, name: str) -> Folder:
    return folder.at(name) if name else folder


def lost(folder: Folder) -> LakeError | None:
    """What to say of a lake that looks empty, but is not: the pointer names nothing, or is gone itself."""
    pointer, data = read(folder)
    where = f"{folder.url}/{POINTER}"
    if pointer.tables:
        if any(table_exists(tables_of(folder, pointer.tables), name) for name in TABLES):
            return None
        return LakeError("the tables that are the lake are gone", where=where, value=pointer.tables, hint=_AGAIN)
    if data is not None or any(table_exists(folder, name) for name in TABLES):
        return None
    left = unnamed(folder)
    if not left or read(folder)[1] is not None:
        return None
    return LakeError("the file that names the lake's tables is gone", where=where, value=left, hint=_AGAIN)


def unnamed(folder: Folder) -> list[str]:
    """Tables that are neither the lake, nor a lake of before, nor being built."""
    pointer, _ = read(folder)
    try:
        building = folder.read(BUILDING)
    except OSError:
        building = b""
    names = {"", *(file.name.partition("/")[0] for file in folder.list("tables-"))}
    names -= {pointer.tables, *(past.tables for past in pointer.before)}
    return [name for name in sorted(names) if (not name or name.encode() not in building)
            and table_exists(tables_of(folder, name), "events")]


def switch(folder: Folder, name: str) -> str:
    """Make these tables the lake; the name of those before. Raises LakeError if another process switched meanwhile."""
    pointer, data = read(folder)
    if pointer.tables == name:
        return name
    before = [Past(pointer.tables, now_us()), *(past for past in pointer.before if past.tables != name)]
    _set(folder, Pointer(name, before), data)
    return pointer.tables


def forget(folder: Folder, name: str) -> None:
    """Tables that are gone."""
    pointer, data = read(folder)
    _set(folder, Pointer(pointer.tables, [past for past in pointer.before if past.tables != name]), data)


def _set(folder: Folder, pointer: Any, data: bytes | None) -> None:
    try:
        done = folder.replace(POINTER, msgspec.json.encode(pointer), data)
    except OSError as wrong:
        raise LakeError(f"lake cannot be written ({wrong.strerror})", where=folder.url,
                        hint="is there free space, and may it be written?") from None
    if not done:
        raise LakeError("another process changed which tables are the lake", where=folder.url, hint="try again")
