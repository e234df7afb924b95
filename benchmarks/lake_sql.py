"""SQL over 5 million turns of 20 tokens: a filtered aggregate, and one episode by its id, beside DuckDB on JSON lines.

    python benchmarks/lake_sql.py [--quick] [--seed S] [--rows N] [--keep DIR]

The rows go through the lake's own commit in flushes of 100,000 and through its compaction; 1,000 episodes of 50 turns
are open at a time, their turns interleaved. `events` gets positions alone: its rows are no part of these questions.
Every query runs through `Lake.sql` in a process that has read the lake before. Quick: 500,000 rows.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from harness import answer, interleaved, parser, quantile, ratio, timed

from artifacts import open_store
from lake import open_lake
from lake.lake import Lake
from schemas.ids import new_id
from schemas.settings import Settings
from schemas.tables import TABLES
from schemas.topics import TRAJECTORIES

OPEN, TURNS, TOKENS = 1000, 50, 20
PARTITIONS = 4
WAVES = 2
"""Waves of `OPEN` episodes in one flush."""
AGGREGATE = """
select version_max, count(*) as turns, avg(turn) as turn, count(*) filter (segment > 0) as later
from {turns} where finish_reason = 'length' and version_max >= 10 group by version_max
"""
OVER_TOKENS = """
select finish_reason, sum(len(generated_tokens)) as tokens from {turns} where version_max >= 10 group by finish_reason
"""
EPISODE = "select * from {turns} where episode_id = ? order by attempt, turn"


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--rows", type=int, help="instead of 5,000,000 (500,000 with --quick)")
    options.add_argument("--keep", type=Path, help="a folder for lake and JSON lines, used again when it is there")
    chosen = options.parse_args()
    rows = chosen.rows or (500_000 if chosen.quick else 5_000_000)
    place = nullcontext(str(chosen.keep)) if chosen.keep else tempfile.TemporaryDirectory(prefix="headrace-benchmark-")
    with place as home:
        lake = open_lake(Settings(home=home), open_store(Settings(home=home)))
        turns, json_lines = Path(home) / "lake" / "turns", Path(home) / "turns.jsonl"
        if not turns.exists():
            build(lake, chosen.seed, rows)
        if not json_lines.exists():
            _write_json_lines(turns, json_lines)
        size = f"{rows} turns, {_files(turns)}; JSON lines of {json_lines.stat().st_size >> 20} MiB"
        held = measure(lake, json_lines, size, chosen.seed, quick=chosen.quick)
    return 0 if all(held) else 1


def measure(lake: Lake, json_lines: Path, size: str, seed: int, quick: bool) -> list[bool]:
    import duckdb

    rng = random.Random(seed)
    names = sorted(lake.sql("select distinct episode_id from turns").column(0).to_pylist())
    raw = duckdb.connect()
    source = f"read_json('{json_lines}', format='newline_delimited')"

    def episode_in_lake() -> float:
        name = rng.choice(names)
        return timed(lambda: _expect(TURNS, lake.sql(EPISODE.format(turns="turns"), parameters=[name])))

    def episode_in_json() -> float:
        query = EPISODE.format(turns=source)
        return timed(lambda: _expect(TURNS, raw.execute(query, [rng.choice(names)]).fetchall()))

    def aggregate_in_lake() -> float:
        return timed(lambda: _expect(1, lake.sql(AGGREGATE.format(turns="turns"))))

    def aggregate_in_json() -> float:
        return timed(lambda: _expect(1, raw.execute(AGGREGATE.format(turns=source)).fetchall()))

    held = []
    rounds, beside = (10, 2) if quick else (40, 3)
    for question, ours, theirs, most_ms in (
            ("filtered aggregate over turns", aggregate_in_lake, aggregate_in_json, 100),
            ("all turns of one episode by its id", episode_in_lake, episode_in_json, 60)):
        ours()
        waits = [1e3 * ours() for _ in range(rounds)]
        held.append(answer(f"{question}, p50", quantile(waits, 0.5), "ms", f"<= {most_ms}",
                           f"p95 {quantile(waits, 0.95):.1f} ms; {size}", rounds))
        both = interleaved(beside, {"lake": ours, "json": theirs})
        held.append(answer(f"{question}, against DuckDB on JSON lines", ratio(both["json"], both["lake"]), "x", ">= 20",
                           f"DuckDB on JSON lines: {quantile(both['json'], 0.5):.2f} s; {size}", beside))
    tokens = [1e3 * timed(lambda: lake.sql(OVER_TOKENS.format(turns="turns"))) for _ in range(beside)]
    held.append(answer("filtered sum of lengths of token lists, p50", quantile(tokens, 0.5), "ms", None, size, beside))
    return held


def _expect(least: int, found: pa.Table | list[Any]) -> None:
    assert len(found) >= least, found


def _files(place: Path) -> str:
    sizes = _live(place).column("size_bytes").to_pylist()
    return f"{len(sizes)} files of {sum(sizes) >> 20} MiB in all"


def _live(place: Path) -> pa.Table:
    from deltalake import DeltaTable

    return pa.table(DeltaTable(place).get_add_actions())


def build(lake: Lake, seed: int, rows: int) -> None:
    lake.bind("benchmark")
    at = {(TRAJECTORIES, part): 0 for part in range(PARTITIONS)}
    for table in _flushes(np.random.default_rng(seed), rows):
        counts = np.bincount(table.column("partition").to_numpy(), minlength=PARTITIONS)
        end = {part: offset + int(counts[part[1]]) for part, offset in at.items()}
        lake.commit({"turns": table}, at, end)
        lake.maintain()
        at = end
    lake.compact()


def _flushes(rng: np.random.Generator, rows: int) -> Iterator[pa.Table]:
    """Tables of WAVES x OPEN x TURNS rows: in each wave a turn of each open episode, then the next turn of each."""
    count = OPEN * TURNS * WAVES
    next_offset = np.zeros(PARTITIONS, dtype=np.int64)
    words = np.array(["the", "file", "test", "returns", "value", "should", "check", "because", "error", "line"])
    clock = 1_800_000_000_000_000
    for _ in range(0, rows, count):
        names, partitions = [], []
        for _ in range(WAVES):
            wave = [new_id() for _ in range(OPEN)]
            names += wave * TURNS
            partitions.append(np.tile(rng.integers(0, PARTITIONS, OPEN, dtype=np.int32), TURNS))
        partition = np.concatenate(partitions)
        offsets = np.zeros(count, dtype=np.int64)
        for part in range(PARTITIONS):
            mine = partition == part
            offsets[mine] = next_offset[part] + np.arange(mine.sum())
            next_offset[part] += mine.sum()
        at = clock + np.arange(count) * 1000
        clock = int(at[-1]) + 1000
        version = rng.integers(0, 20, count)
        texts = [" ".join(line) for line in rng.choice(words, (count, 12))]
        columns = {
            "episode_id": names, "turn": np.tile(np.repeat(np.arange(TURNS), OPEN), WAVES),
            "segment": np.zeros(count, dtype=np.int64), "attempt": np.ones(count, dtype=np.int64),
            "context_tokens": _lists(rng, count), "generated_tokens": _lists(rng, count),
            "logprobs": _reals(rng, count), "version_min": version, "version_max": version, "text": texts,
            "finish_reason": rng.choice(np.array(["stop", "stop", "stop", "length"]), count), "started_at": at,
            "finished_at": at + 800, "prefix": ["sha256:" + line.tobytes().hex() for line in
                                                rng.integers(0, 256, (count, 32), dtype=np.uint8)],
            "topic": [TRAJECTORIES] * count, "partition": partition, "offset": offsets}
        schema = TABLES["turns"]
        yield pa.table([pa.array(columns[field.name]).cast(field.type) for field in schema], schema=schema)


def _lists(rng: np.random.Generator, count: int) -> pa.Array:
    ids = (32_000 ** rng.random(count * TOKENS)).astype(np.int32)
    return pa.ListArray.from_arrays(np.arange(count + 1, dtype=np.int32) * TOKENS, ids)


def _reals(rng: np.random.Generator, count: int) -> pa.Array:
    values = (-rng.exponential(0.7, count * TOKENS)).astype(np.float32)
    return pa.ListArray.from_arrays(np.arange(count + 1, dtype=np.int32) * TOKENS, values)


def _write_json_lines(place: Path, path: Path) -> None:
    import duckdb

    with duckdb.connect() as raw:
        live = [f"{place}/{name}" for name in _live(place).column("path").to_pylist()]
        raw.execute(f"copy (select * from read_parquet({live})) to '{path}' (format json)")


if __name__ == "__main__":
    sys.exit(main())
