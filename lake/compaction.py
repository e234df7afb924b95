"""Compaction: many small files of a table become few larger ones; not one row changes.

Written by us, because the library's own (`optimize.compact`, seen in 1.6.6) lets two compactions of the same files
both succeed, which doubles their rows, and takes no application transaction that would stop the second. Here each
compaction moves the table's compaction counter in its own commit: of two at once, one fails and changes nothing.
Appends never conflict with it. The old files stay on disk for readers that still hold them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from lake.files import SMALL_BYTES, LiveFile, add_action, parquet_writer, small_files
from lake.tables import commit, open_table
from schemas.errors import CommitConflictError, LakeError
from schemas.ids import new_id

if TYPE_CHECKING:
    from deltalake.transaction import AddAction

MAX_SMALL_FILES = 64
LARGE_BYTES = 128 << 20
_ROW_GROUP_BYTES = 32 << 20
_COUNTER = "headrace/compaction"


def compact_table(root: Path, name: str, below: int = SMALL_BYTES, target: int = LARGE_BYTES) -> int:
    """Merge the files smaller than `below`; how many were merged. 0 if another process did it at the same time."""
    from deltalake import Transaction
    from deltalake.transaction import RemoveAction

    handle = open_table(root, name)
    files = small_files(handle, below)
    if len(files) < 2:
        return 0
    added = [_merge(root / name, group) for group in _groups(files, target)]
    now = time.time_ns() // 1_000_000
    removed = [RemoveAction(file.path, data_change=False, deletion_timestamp=now, size=file.size, partition_values={})
               for file in files]
    counter = (handle.transaction_version(_COUNTER) or 0) + 1
    try:
        commit(handle, [*added, *removed], [Transaction(_COUNTER, counter)])
    except CommitConflictError:
        return 0
    return len(files)


def _groups(files: list[LiveFile], target: int) -> Iterator[list[LiveFile]]:
    group: list[LiveFile] = []
    for file in files:
        if group and sum(member.size for member in group) + file.size > target:
            yield group
            group = []
        group.append(file)
    if group:
        yield group


def _merge(folder: Path, files: list[LiveFile]) -> AddAction:
    """One file with the rows of `files`, in bounded memory. Raises LakeError rather than lose a row."""
    name = f"part-{new_id()}.parquet"
    schema = pa.unify_schemas([pq.read_schema(folder / file.path) for file in files])
    rows = 0
    with parquet_writer(folder / name, schema) as writer:
        for table in _row_groups(folder, files, schema):
            writer.write_table(table)
            rows += table.num_rows
    wanted = sum(file.rows or 0 for file in files)
    if any(file.rows is None for file in files) or rows != wanted:
        (folder / name).unlink()
        raise LakeError("compaction read another number of rows than the table says; nothing was changed",
                        where=str(folder), value=(rows, wanted))
    return add_action(folder, name, rows, {}, data_change=False)


def _row_groups(folder: Path, files: list[LiveFile], schema: pa.Schema) -> Iterator[pa.Table]:
    waiting: list[pa.Table] = []
    for file in files:
        table = pq.read_table(folder / file.path, partitioning=None)
        missing = [field for field in schema if field.name not in table.column_names]
        for field in missing:
            table = table.append_column(field, pa.nulls(table.num_rows, field.type))
        waiting.append(table.select(schema.names).cast(schema))
        if sum(table.nbytes for table in waiting) >= _ROW_GROUP_BYTES:
            yield pa.concat_tables(waiting).combine_chunks()
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()
