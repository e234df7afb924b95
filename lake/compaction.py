"""Compaction: many small files of a table become one larger; not one row changes.

Written by us, because the library's own (`optimize.compact`, seen in 1.6.6) lets two compactions of the same files
both succeed, which doubles their rows, and takes no application transaction that would stop the second. Here each
compaction moves the table's compaction counter in its own commit: of two at once, one fails and changes nothing.
Appends never conflict with it. The old files stay on disk for readers that still hold them.

By tiers: files of one size class are merged when there are enough of them, so a row is rewritten once for each class.
Rows count too: those that compress to nothing would else stay in the first class for ever, and be rewritten each time.
In a merged file the rows of an episode lie together (`lake/clustering.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from artifacts.folder import Folder
from lake.clustering import clustered
from lake.files import DataFile, LiveFile, add_action, as_written, remove_action
from lake.tablelog import TableLog
from schemas.errors import LakeError

MAX_FILES = 16
"""Files of one tier that may live side by side: what a query has to open."""
_TIERS = (1 << 16, 1 << 20, 16 << 20, 64 << 20)
"""Upper bounds of the size classes in bytes. Larger files are left alone."""
_MERGED_BYTES = 2 * _TIERS[-1]
"""A merge fills its files so far: all but the last of them leave the classes for good."""
_ROW_BYTES = 128
_COUNTER = "headrace/compaction"
DOCTOR = "`headrace lake doctor` says what to do"


def due(files: Sequence[LiveFile]) -> list[LiveFile]:
    """The files of the first tier that is too full; none where all is well."""
    low = 0
    for high in _TIERS:
        tier = [file for file in files if low <= weight(file) < high]
        if len(tier) > MAX_FILES:
            return tier
        low = high
    return []


def weight(file: LiveFile) -> int:
    """What its size class goes by, in bytes."""
    return max(file.size, (file.rows or 0) * _ROW_BYTES)


def all_small(files: Sequence[LiveFile]) -> list[LiveFile]:
    small = [file for file in files if weight(file) < _TIERS[-1]]
    return small if len(small) > 1 else []


def merge(log: TableLog, files: Sequence[LiveFile]) -> None:
    """Replace the files by as few as the largest tier allows. Raises CommitConflictError if another compaction of the
    table came first."""
    counter = log.transactions.get(_COUNTER, 0) + 1
    added = [_merged(log.folder, group) for group in groups(files)]
    log.commit([*added, *map(remove_action, files)], {_COUNTER: counter})


def groups(files: Sequence[LiveFile]) -> Iterator[list[LiveFile]]:
    group: list[LiveFile] = []
    for file in files:
        if group and sum(map(weight, group)) + weight(file) > _MERGED_BYTES:
            yield group
            group = []
        group.append(file)
    if group:
        yield group


def _merged(folder: Folder, files: Sequence[LiveFile]) -> dict[str, Any]:
    """One file with the rows of `files`, in bounded memory. Raises LakeError rather than lose a row."""
    _require_as_told(folder, files)
    with ExitStack() as stack:
        readers = [pq.ParquetFile(stack.enter_context(folder.reader(file.path))) for file in files]
        schema = as_written(pa.unify_schemas([reader.schema_arrow for reader in readers]))
        told = [(file.rows, reader.metadata.num_rows) for file, reader in zip(files, readers, strict=True)]
        made = DataFile(folder, schema)
        with made.opened():
            for table in clustered(readers, schema):
                made.write(table)
            if any(rows != there for rows, there in told) or made.rows != sum(rows or 0 for rows, _ in told):
                raise LakeError("compaction read another number of rows than the table tells; nothing was changed",
                                where=folder.url, value={"read": made.rows, "told and there": told}, hint=DOCTOR)
    return add_action(made, {}, data_change=False)


def _require_as_told(folder: Folder, files: Sequence[LiveFile]) -> None:
    """Raises LakeError for a file of another size than it was written with."""
    for file in files:
        if (size := folder.size(file.path)) != file.size:
            raise LakeError("a file is not as it was written; nothing was changed", hint=DOCTOR,
                            where=f"{folder.url}/{file.path}", value={"bytes": size, "written": file.size})
