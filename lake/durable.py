"""What of a table's log is on disk. Our own commits are durable when they return (`lake/tablelog.py`); what the library
writes (the first entry of a table, new columns, checkpoints) it does not sync, and older releases left entries so.

Order: a data file is synced before an entry names it (`lake/files.py`), an entry before anybody can see it, all tables
of a flush before `events`. An entry that a power cut left empty holds nothing: it counts as a commit without actions,
so its rows are written again from the log.
"""

from __future__ import annotations

from artifacts.folder import Folder
from lake.transactions import LOG, entry_name
from schemas.errors import LakeError

_LOOK_BACK = 200
"""Entries that are synced when a table is opened."""


class Durable:
    """How far the log of one table is known to be on disk."""

    def __init__(self, table: Folder) -> None:
        self._log = table.at(LOG)
        self._version = -1

    def reach(self, version: int) -> None:
        """Sync what was written up to this version and was not synced yet. Raises LakeError."""
        numbers = range(max(self._version + 1, version - _LOOK_BACK), version + 1)
        checkpoints = [f"{number:020d}.checkpoint.parquet" for number in numbers]
        try:
            self._log.sync([*map(entry_name, numbers), *checkpoints, "_last_checkpoint"])
        except OSError as wrong:
            raise LakeError(f"a commit is not safe from a power cut ({wrong.strerror})", where=self._log.url,
                            hint="is the disk full, or failing?") from None
        self._version = version
