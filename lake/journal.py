"""The log of a Delta table as its files tell it: entries, what they removed, what is on disk. For maintenance only."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from artifacts.folder import Folder, Stored
from lake.transactions import LOG, actions_of, entry_name

_ENTRY = re.compile(rf"{LOG}/(\d{{20}})\.json")
_CHECKPOINT = re.compile(rf"{LOG}/(\d{{20}})\.checkpoint\.parquet")
_PART = re.compile(r"(^|/)(\.[^/]*\.part|[^/]*\.tmp[^/]*)$")


class Listing(NamedTuple):
    """Files of a table's folder, by what they are."""

    data: list[Stored]
    entries: dict[int, Stored]
    checkpoints: dict[int, Stored]
    parts: list[Stored]
    """Left by a writer that died before its file had a name."""


def list_table(folder: Folder) -> Listing:
    found = Listing([], {}, {}, [])
    for file in folder.list():
        if entry := _ENTRY.fullmatch(file.name):
            found.entries[int(entry[1])] = file
        elif checkpoint := _CHECKPOINT.fullmatch(file.name):
            found.checkpoints[int(checkpoint[1])] = file
        elif _PART.search(file.name):
            found.parts.append(file)
        elif file.name.endswith(".parquet") and "/" not in file.name:
            found.data.append(file)
    return found


def read_entry(folder: Folder, version: int) -> list[dict[str, Any]]:
    """Its actions. Raises OSError or ValueError."""
    lines = list(actions_of(folder.read(f"{LOG}/{entry_name(version)}")))
    if not lines or not all(isinstance(line, dict) for line in lines):
        raise ValueError("the entry holds no actions")
    return lines
