"""Results as files: every format, whole or not at all, never over another file, in bounded memory."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from headrace.cli import main
from headrace.export import export
from lake import open_lake
from schemas.errors import HeadraceError, QueryError, UserError
from schemas.settings import Settings
from tests.conftest import REPOSITORY
from tests.lake.worlds import World


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> str:
    world = World(tmp_path_factory.mktemp("hömes") / "a home")
    world.fill()
    world.close()
    return world.settings.home


QUERY = "select episode_id, turn, generated_tokens, logprobs, text, started_at, null as nothing from turns order by all"


def test_every_format_holds_the_same_rows(home: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", QUERY, "--home", home, "-o", "json"]) == 0
    wanted = json.loads(capsys.readouterr().out)
    assert len(wanted) == 5
    for kind in ("parquet", "csv", "json", "jsonl"):
        out = tmp_path / f"a résult.{kind}"
        assert main(["sql", QUERY, "--home", home, "--out", str(out)]) == 0
        shown = capsys.readouterr()
        assert shown.out == "" and f"5 rows written to {out}" in shown.err
    assert json.loads((tmp_path / "a résult.json").read_text()) == wanted
    assert [json.loads(line) for line in (tmp_path / "a résult.jsonl").read_text().splitlines()] == wanted
    table = pq.read_table(tmp_path / "a résult.parquet")
    assert table["generated_tokens"].to_pylist() == [row["generated_tokens"] for row in wanted]
    with (tmp_path / "a résult.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [json.loads(row["generated_tokens"]) for row in rows] == [row["generated_tokens"] for row in wanted]
    assert [row["text"] for row in rows] == [row["text"] for row in wanted]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"a résult.{kind}" for kind in ("csv", "json", "jsonl", "parquet")]


def test_a_limit_and_an_empty_result(home: str, tmp_path: Path) -> None:
    lake = open_lake(Settings(home=home), None)  # type: ignore[arg-type]
    assert export(lake, "select * from events", str(tmp_path / "a.jsonl"), limit=3) == 3
    assert len((tmp_path / "a.jsonl").read_text().splitlines()) == 3
    for kind in ("parquet", "csv", "json", "jsonl"):
        assert export(lake, "select * from turns where false", str(tmp_path / f"b.{kind}")) == 0
    assert json.loads((tmp_path / "b.json").read_text()) == []
    assert "generated_tokens" in pq.read_schema(tmp_path / "b.parquet").names


def refused(home: str, *arguments: str) -> HeadraceError:
    lake = open_lake(Settings(home=home), None)  # type: ignore[arg-type]
    with pytest.raises((UserError, QueryError)) as wrong:
        export(lake, *arguments)
    return wrong.value


def test_what_is_refused(home: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = tmp_path / "there.csv"
    there.write_text("mine")
    assert "there already" in str(refused(home, "select 1", str(there)))
    assert there.read_text() == "mine"
    assert main(["sql", "select 1 as x", "--home", home, "--out", str(there)]) == 2
    assert main(["sql", "select 1 as x", "--home", home, "--out", str(there), "--force"]) == 0
    assert there.read_text() == "x\n1\n"
    assert "unknown kind" in str(refused(home, "select 1", str(tmp_path / "a.xlsx")))
    assert "folder is not there" in str(refused(home, "select 1", str(tmp_path / "no" / "a.csv")))
    assert main(["sql", "select 1", "--home", home, "--force"]) == 2
    assert "error[user]" in capsys.readouterr().err


def test_a_query_that_fails_half_way_leaves_nothing(home: str, tmp_path: Path) -> None:
    query = "select case when turn = 0 and episode_id = 'open' then error('half way') else 'x' end from turns"
    assert "half way" in str(refused(home, query, str(tmp_path / "a.csv")))
    assert list(tmp_path.iterdir()) == []


_BIG = """
import sys, threading
import numpy as np, pyarrow as pa
from artifacts import open_store
from headrace.export import export
from lake import open_lake
from schemas.settings import Settings
from schemas.tables import TABLES
from tests.memory import peak_mib

home, out, mode = sys.argv[1:]
settings = Settings(home=home, lake_memory_mb=256)
lake = open_lake(settings, open_store(settings))
if mode == "fill":
    lake.bind("log")
    tokens, rows = 150_000, 40
    for flush in range(20):
        start, end = flush * rows, (flush + 1) * rows
        ids = pa.array(np.tile(np.arange(1000, dtype=np.int32), tokens * rows // 1000))
        ends = pa.array(np.arange(0, tokens * rows + 1, tokens, dtype=np.int32))
        columns = {field.name: pa.nulls(rows, field.type) for field in TABLES["turns"]}
        columns["generated_tokens"] = pa.ListArray.from_arrays(ends, ids)
        columns["logprobs"] = pa.ListArray.from_arrays(ends, ids.cast(pa.float32()))
        columns |= {"topic": pa.array(["trajectories"] * rows), "partition": pa.array([0] * rows, pa.int32()),
                    "offset": pa.array(range(start, end)), "episode_id": pa.array([f"e{i % 7}" for i in range(rows)])}
        part = ("trajectories", 0)
        lake.commit({"turns": pa.table(columns, schema=TABLES["turns"])}, {part: start}, {part: end})
else:
    before = peak_mib()
    assert export(lake, "select * from turns", out) == 800
    print(before, peak_mib())
"""


def test_long_trajectories_need_little_memory(tmp_path: Path) -> None:
    """960 MB of ids and logprobs through 256 MB of query memory."""
    home, out = str(tmp_path / "home"), str(tmp_path / "out.parquet")
    subprocess.run([sys.executable, "-c", _BIG, home, out, "fill"], check=True, timeout=300, cwd=REPOSITORY)
    done = subprocess.run([sys.executable, "-c", _BIG, home, out, "read"], check=True, capture_output=True, text=True,
                          timeout=300, cwd=REPOSITORY)
    _, most_mb = map(int, done.stdout.split())
    assert most_mb < 900, done.stdout
