"""A query's result as a file: Parquet, CSV, JSON or JSON lines, a few rows at a time, whole or not at all."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.output import plain
from schemas.errors import QueryError, UserError
from schemas.files import sync_file, sync_folder
from schemas.ids import new_id

if TYPE_CHECKING:
    import pyarrow as pa

    from lake.lake import Lake

_BATCH_ROWS = 32
"""Few, for a row may hold a long trajectory."""
_GROUP_BYTES = 32 << 20
FORMATS = (".parquet", ".csv", ".json", ".jsonl")


def require_writable(out: str, force: bool) -> Path:
    """Before a long query. Raises UserError."""
    path = Path(out)
    if path.suffix.lower() not in FORMATS:
        raise UserError("unknown kind of file", where="--out", value=out, hint=f"end it in {', '.join(FORMATS)}")
    if path.is_dir():
        raise UserError("a folder is there", where="--out", value=out)
    if not path.parent.is_dir():
        raise UserError("the folder is not there", where="--out", value=str(path.parent), hint="make it first")
    if path.exists() and not force:
        raise UserError("the file is there already", where="--out", value=out, hint="--force replaces it")
    return path


def export(lake: Lake, query: str, out: str, *, as_of: Mapping[str, int] | None = None, limit: int | None = None,
           force: bool = False) -> int:
    """Write the result; how many rows. The file appears when it is whole."""
    import duckdb
    import pyarrow as pa

    path = require_writable(out, force)
    write = {".parquet": _parquet, ".csv": _csv, ".json": _json, ".jsonl": _jsonl}[path.suffix.lower()]
    beside = path.parent / f".{new_id()}.part"
    try:
        reader = lake.reader(query, as_of, rows=_BATCH_ROWS)
        rows = write(beside, reader.schema, _limited(reader, limit))
        sync_file(beside)
        if force:
            beside.rename(path)
        else:
            _name(beside, path)
        sync_folder(path.parent)
        return rows
    except (duckdb.Error, pa.ArrowException) as wrong:
        raise QueryError(f"the query failed while its result was written: {str(wrong).splitlines()[0]}",
                         value=" ".join(query.split()), hint="try again; `headrace lake doctor` tells damage") from None
    except OSError as wrong:
        raise UserError(f"result cannot be written ({wrong.strerror or wrong})", where="--out", value=out,
                        hint="is there room, and the folder writable?") from None
    finally:
        beside.unlink(missing_ok=True)


def _name(beside: Path, path: Path) -> None:
    """Raises UserError if somebody else made the file meanwhile."""
    with suppress(OSError):  # Not every file system knows hard links.
        os.link(beside, path)
        return
    require_writable(str(path), force=False)
    beside.rename(path)


def _limited(batches: Iterator[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    left = limit
    for batch in batches:
        if left is not None:
            batch = batch.slice(0, left)
            left -= batch.num_rows
        yield batch
        if left == 0:
            return


def _parquet(path: Path, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    count, waiting, size = 0, [], 0
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for batch in batches:
            count += batch.num_rows
            size += batch.nbytes
            waiting.append(batch)
            if size >= _GROUP_BYTES:
                writer.write_table(pa.Table.from_batches(waiting))
                waiting, size = [], 0
        if waiting:
            writer.write_table(pa.Table.from_batches(waiting))
    return count


def _rows(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    for batch in batches:
        for row in batch.to_pylist():
            yield {name: plain(row[name]) for name in schema.names}


def _csv(path: Path, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> int:
    count = 0
    with path.open("x", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(schema.names)
        for row in _rows(schema, batches):
            writer.writerow([json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value
                             for value in row.values()])
            count += 1
    return count


def _json(path: Path, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> int:
    count = 0
    with path.open("x", encoding="utf-8") as file:
        file.write("[")
        for row in _rows(schema, batches):
            file.write(("," if count else "") + "\n" + json.dumps(row, ensure_ascii=False))
            count += 1
        file.write("\n]\n" if count else "]\n")
    return count


def _jsonl(path: Path, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> int:
    count = 0
    with path.open("x", encoding="utf-8") as file:
        for row in _rows(schema, batches):
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            count += 1
    return count
