"""Data files of a table. Written here rather than by the library: a commit then costs the same however many files are
live, token columns get the encodings that suit them, and a file's name tells its columns, so that readers need not open
all files to know them. Nobody sees a file before a commit names it, and the commit tells the digest of its bytes.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from artifacts.folder import Folder
from schemas.errors import LakeError
from schemas.ids import new_id

if TYPE_CHECKING:
    from deltalake import DeltaTable

DIGEST_TAG = "headrace.digest"
_TOKENS = {"context_tokens.list.element", "generated_tokens.list.element"}
_PLAIN = {"data", "text", "output", "arguments", "answer", "id", "event_id", "score_id"}
"""Columns whose values hardly repeat: a dictionary would only cost time."""


def new_file(schema: pa.Schema) -> str:
    """A name for a file of these columns."""
    return f"{schema_mark(schema)}-{new_id()}.parquet"


def schema_mark(schema: pa.Schema) -> str:
    """The same for files that can be read together as they are."""
    columns = "\n".join(f"{field.name} {field.type}" for field in schema)
    return hashlib.sha256(columns.encode()).hexdigest()[:12]


def as_written(schema: pa.Schema) -> pa.Schema:
    """The schema of a file as we write it: Parquet gives other names to the inside of lists and maps, and a file that
    got those would bear another mark."""
    return pa.schema([pa.field(field.name, _as_written(field.type)) for field in schema])


def _as_written(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(kind.value_type)
    return pa.map_(kind.key_type, kind.item_type) if pa.types.is_map(kind) else kind


class DataFile:
    """A file that is being written; its size and digest are known once it is closed."""

    def __init__(self, folder: Folder, schema: pa.Schema) -> None:
        self.name, self.rows, self.size, self._folder, self._schema = new_file(schema), 0, 0, folder, schema
        self._hash = hashlib.sha256()
        self._writer: pq.ParquetWriter | None = None

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Durable afterwards; no file after an exception inside. Raises LakeError where the folder cannot be written,
        or holds less than was written."""
        try:
            with self._folder.writer(self.name) as file:
                tee = _Tee(file, self._hash.update)
                with pq.ParquetWriter(tee, self._schema, **parquet_options(self._schema)) as self._writer:
                    yield
        except OSError as wrong:
            raise LakeError(f"a data file cannot be written ({wrong.strerror or wrong})", where=self._folder.url,
                            hint="is there free space, and may it be written?") from None
        self.size = tee.size
        if (there := self._folder.size(self.name)) != self.size:
            raise LakeError("a file that was just written is not as it was written", where=self._folder.url,
                            value={"file": self.name, "written": self.size, "there": there})

    def write(self, rows: pa.Table) -> None:
        assert self._writer is not None
        self._writer.write_table(rows)
        self.rows += rows.num_rows

    @property
    def digest(self) -> str:
        return f"sha256:{self._hash.hexdigest()}"


class _Tee:
    """What is written to a file is also told to another."""

    def __init__(self, file: BinaryIO, tell: Callable[[Any], None]) -> None:
        self._file, self._tell, self.size = file, tell, 0

    def write(self, data: Any) -> int:
        self._tell(data)
        self.size += len(data)
        return self._file.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def write_file(folder: Folder, rows: pa.Table) -> DataFile:
    """Write `rows` as one Parquet file of the table, durably."""
    file = DataFile(folder, rows.schema)
    with file.opened():
        file.write(rows)
    return file


def parquet_options(schema: pa.Schema) -> dict[str, Any]:
    """Compression and encodings that suit the columns."""
    encodings = {leaf: encoding for field in schema if (encoding := _encoding(field, leaf := _leaf(field)))}
    dictionary = [leaf for field in schema if (leaf := _leaf(field)) not in encodings and _repeats(field, leaf)]
    return {"compression": "zstd", "compression_level": 1, "use_dictionary": dictionary,
            "column_encoding": encodings or None}


def _encoding(field: pa.Field, leaf: str) -> str | None:
    if leaf == "logprobs.list.element":
        return "BYTE_STREAM_SPLIT"
    return "DELTA_BINARY_PACKED" if leaf == "offset" or pa.types.is_timestamp(field.type) else None


def _repeats(field: pa.Field, leaf: str) -> bool:
    """Values that a dictionary makes smaller, and quicker to filter by: small numbers too."""
    return leaf in _TOKENS or (leaf not in _PLAIN and (pa.types.is_string(field.type)
                                                      or pa.types.is_integer(field.type)))


def _leaf(field: pa.Field) -> str:
    return f"{field.name}.list.element" if pa.types.is_list(field.type) else str(field.name)


def add_action(file: DataFile, spans: Mapping[str, tuple[Any, Any]], data_change: bool) -> dict[str, Any]:
    """What an entry of the table's log says of a new file."""
    stats = {"numRecords": file.rows, "minValues": {key: low for key, (low, _) in spans.items()},
             "maxValues": {key: high for key, (_, high) in spans.items()}}
    return {"add": {"path": file.name, "partitionValues": {}, "size": file.size, "modificationTime": _now_ms(),
                    "dataChange": data_change, "stats": json.dumps(stats), "tags": {DIGEST_TAG: file.digest}}}


def remove_action(file: LiveFile) -> dict[str, Any]:
    """Of a file whose rows another one has now."""
    return {"remove": {"path": file.path, "deletionTimestamp": _now_ms(), "dataChange": False,
                       "extendedFileMetadata": True, "partitionValues": {}, "size": file.size}}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def spans_of(rows: pa.Table) -> dict[str, tuple[Any, Any]]:
    """Least and greatest value of the position columns: what file pruning may ask for."""
    found = {name: pc.min_max(rows.column(name)).as_py() for name in ("topic", "partition", "offset")}
    return {name: (span["min"], span["max"]) for name, span in found.items()}


class LiveFile(NamedTuple):
    path: str
    size: int
    rows: int | None


def live_files(handle: DeltaTable) -> list[LiveFile]:
    """Oldest first."""
    table: Any = pa.table(handle.get_add_actions(flatten=True)).select(
        ["path", "size_bytes", "num_records", "modification_time"])
    rows = sorted(table.to_pylist(), key=lambda row: (row["modification_time"], row["path"]))
    return [LiveFile(row["path"], row["size_bytes"], row["num_records"]) for row in rows]
