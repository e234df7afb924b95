"""Compacted files hold the rows of an episode side by side; not one is lost, however the ranges are cut."""

from __future__ import annotations

import io
import random
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lake import clustering
from lake.clustering import clustered, conform, key_of
from lake.files import as_written, schema_mark
from schemas.tables import TABLES

SCHEMA = pa.schema([("episode_id", pa.string()), ("tokens", pa.list_(pa.int32())), ("partition", pa.int32()),
                    ("offset", pa.int64())])


def file_of(rows: Sequence[tuple[str | None, int]], groups: int = 1000) -> pq.ParquetFile:
    table = pa.table([[key for key, _ in rows], [[offset] * 5 for _, offset in rows], [0] * len(rows),
                      [offset for _, offset in rows]], schema=SCHEMA)
    buffer = io.BytesIO()
    pq.write_table(table, buffer, row_group_size=groups)
    return pq.ParquetFile(buffer)


def interleaved(episodes: int, turns: int) -> list[tuple[str | None, int]]:
    keys = [f"e{number:03}" for number in range(episodes)] * turns
    return [(key, offset) for offset, key in enumerate(keys)]


def rows_of(pieces: Sequence[pa.Table]) -> list[tuple[str | None, int]]:
    return [(row["episode_id"], row["offset"]) for piece in pieces for row in piece.to_pylist()]


@pytest.mark.parametrize("range_bytes", [400, 4000, 1 << 20])
def test_rows_are_in_the_order_of_keys_and_then_of_the_log(range_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clustering, "_RANGE_BYTES", range_bytes)
    rows = interleaved(20, 30)
    files = [file_of(rows[start:start + 200], groups=70) for start in range(0, len(rows), 200)]
    pieces = list(clustered(files, SCHEMA))
    assert rows_of(pieces) == sorted(rows)
    assert all(piece.schema == SCHEMA for piece in pieces)


def test_pieces_are_bounded_and_most_episodes_lie_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clustering, "ROW_GROUP_BYTES", 1000)
    pieces = list(clustered([file_of(interleaved(50, 20))], SCHEMA))
    assert len(pieces) > 10
    assert max(piece.num_rows for piece in pieces) <= 2 * sum(piece.num_rows for piece in pieces) / len(pieces)
    places = [sum(key in piece["episode_id"].to_pylist() for piece in pieces) for key in ("e000", "e017", "e049")]
    assert max(places) <= 2


def test_a_row_without_a_key_and_an_episode_larger_than_a_range_are_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clustering, "_RANGE_BYTES", 500)
    rows: list[tuple[str | None, int]] = [("large", offset) for offset in range(500)]
    rows += [("", 500), *((random.Random(1).choice("abc"), offset) for offset in range(501, 600))]
    rows[50] = (None, 50)
    assert sorted(rows_of(list(clustered([file_of(rows, 90)], SCHEMA))), key=repr) == sorted(rows, key=repr)


def test_tables_without_an_episode_keep_their_order() -> None:
    schema = pa.schema([("step", pa.int64())])
    buffer = io.BytesIO()
    pq.write_table(pa.table({"step": [3, 1, 2]}), buffer)
    assert key_of(schema) is None
    assert [piece["step"].to_pylist() for piece in clustered([pq.ParquetFile(buffer)], schema)] == [[3, 1, 2]]


@pytest.mark.parametrize("name", TABLES)
def test_a_compacted_file_bears_the_mark_of_its_table(name: str) -> None:
    """Else a query would read it as a file of foreign columns, which takes several times as long."""
    buffer = io.BytesIO()
    pq.write_table(TABLES[name].empty_table(), buffer)
    read = as_written(pq.ParquetFile(buffer).schema_arrow)
    assert schema_mark(read) == schema_mark(TABLES[name])
    assert conform(pq.read_table(buffer), read).schema == TABLES[name]
