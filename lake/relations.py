"""What the views stand on: `raw_NAME`, the rows of table NAME below a snapshot, as relations over Parquet files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

import pyarrow as pa

from eventlog.log import TopicPartition
from lake.files import schema_mark
from lake.snapshot import Held
from lake.views import VIEWS
from schemas.tables import TABLES

_SQL_TYPES: dict[pa.DataType, str] = {
    pa.string(): "varchar", pa.int64(): "bigint", pa.int32(): "integer", pa.float64(): "double", pa.float32(): "float",
    pa.bool_(): "boolean", pa.binary(): "blob", pa.timestamp("us", tz="UTC"): "timestamptz"}


def statements(names: Iterable[str], held: Mapping[str, Held],
               positions: Mapping[TopicPartition, int]) -> list[str]:
    """CREATE statements for views and what they stand on, raw tables first."""
    names = list(names)
    bases = [name.removeprefix("raw_") for name in names if name.startswith("raw_")]
    made = [f"create temp view raw_{base} as {_raw(base, held[base], positions)}" for base in bases]
    return made + [f"create temp view {name} as {VIEWS[name].sql}" for name in names if name in VIEWS]


def _raw(table: str, held: Held, positions: Mapping[TopicPartition, int]) -> str:
    """Rows below the snapshot. Columns that no file of an older release has are null; without files there are no
    rows, but names and types."""
    files = held.paths
    groups = _alike(files) if positions else {}
    if set(groups) == {schema_mark(TABLES[table])}:
        source = f"read_parquet([{', '.join(map(_text, files))}])"
    else:
        reads = [f"select * from read_parquet([{', '.join(map(_text, alike))}])" for alike in groups.values()]
        source = f"({' union all by name '.join([empty_columns(table), *reads])})"
    return f"select * from {source}" + ("" if held.within(positions) else f" where {_below(positions)}")


def _alike(files: list[str]) -> dict[str, list[str]]:
    """Files that have the same columns, which their names tell. Of a foreign writer's file nothing is known."""
    groups: dict[str, list[str]] = {}
    for path in files:
        mark, dash, _ = path.rpartition("/")[2].partition("-")
        groups.setdefault(mark if dash and mark != "part" else path, []).append(path)
    return groups


@cache
def empty_columns(table: str) -> str:
    columns = ", ".join(f'null::{_sql_type(field.type)} as "{field.name}"' for field in TABLES[table])
    return f"select {columns} where false"


def _sql_type(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"{_sql_type(kind.value_type)}[]"
    if pa.types.is_map(kind):
        return f"map({_sql_type(kind.key_type)}, {_sql_type(kind.item_type)})"
    return _SQL_TYPES[kind]


def _below(positions: Mapping[TopicPartition, int]) -> str:
    topics: dict[str, dict[int, int]] = {}
    for (topic, partition), offset in positions.items():
        topics.setdefault(topic, {})[partition] = offset
    if not topics:
        return "false"
    cases = " ".join(f"when {_text(topic)} then {_limit(parts)}" for topic, parts in topics.items())
    return f'"offset" < case topic {cases} else 0 end'


def _limit(partitions: Mapping[int, int]) -> str:
    cases = " ".join(f"when {number} then {offset}" for number, offset in sorted(partitions.items()))
    return f"case partition {cases} else 0 end"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
