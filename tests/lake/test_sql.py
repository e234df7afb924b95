"""What a query may do, what it may not, and what it is told when it is wrong."""

from __future__ import annotations

import gc
import os
import signal
import threading
from pathlib import Path

import pytest

from artifacts.store import DirectoryStore
from lake import open_lake
from lake.lake import Lake
from schemas.errors import ConfigError, LakeError, QueryError
from schemas.settings import Settings
from tests.lake.histories import Story, pour, records_of, rows, whole_story


@pytest.fixture
def filled(lake: Lake, artifacts: DirectoryStore, story: Story) -> Lake:
    whole_story(story)
    pour(lake, artifacts, records_of(story.told))
    return lake


def test_the_query_of_the_contract(filled: Lake) -> None:
    query = "select kind, count(*), avg(reward) from episodes join current_scores using (episode_id) group by 1"
    assert rows(filled, query) == [("tools", 4, 1.0)]


@pytest.mark.parametrize("query", [
    "from requests", "with x as (select 1 as a) select a from x, requests", "explain select * from requests",
    "describe turns", "summarize requests", "show tables", "pivot requests on purpose using count(*)",
    "-- a comment\nselect 1", "values (1)", "select * from information_schema.tables where table_name = 'turns'",
    'select "offset", partition from events', "select unnest(generated_tokens), list_sum(logprobs) from turns"])
def test_what_reads_is_allowed(filled: Lake, query: str) -> None:
    assert filled.sql(query).num_rows > 0


@pytest.mark.parametrize("query", [
    "copy (select 1) to '{root}/x.csv'", "explain analyze copy (select 1) to '{root}/x.csv'",
    "/* hi */ explain (analyze) copy (select 1) to '{root}/x.csv'", "export database '{root}/x'",
    "attach '{root}/x.db'", "install httpfs", "load httpfs", "set memory_limit = '64GB'", "create table x (a int)",
    "drop view turns", "pragma database_list", "insert into requests select * from requests", "delete from requests",
    "select * from read_text('/etc/passwd')", "select * from read_csv('/etc/passwd')", "from glob('/etc/*')",
    "select * from '/etc/passwd'", "select 1; select 2", "call pragma_version()", ""])
def test_what_is_not_a_single_reading_query_is_refused(filled: Lake, query: str) -> None:
    before = sorted(filled.root.rglob("*"))
    with pytest.raises(QueryError) as refused:
        filled.sql(query.format(root=filled.root))
    assert refused.value.exit_code == 2 and refused.value.hint
    assert sorted(filled.root.rglob("*")) == before


def test_a_python_variable_is_no_table(filled: Lake) -> None:
    secret = {"a": [1]}
    with pytest.raises(QueryError, match="secret"):
        filled.sql("select * from secret")
    assert secret


@pytest.mark.parametrize(("query", "what", "hint"), [
    ("select * from episods", "episods does not exist", "did you mean `episodes`"),
    ("select epsode_id from episodes", "epsode_id", "episode_id"),
    ("selct * from episodes", "syntax error", "tables: requests, episodes"),
    ("select offset from events", "syntax error", 'write "offset"'),
    ("select no_such_function(1)", "no_such_function", ""),
    ("select cast(answer as int) from episodes where answer = 'x' or true", "", ""),
])
def test_wrong_sql_says_what_is_near(filled: Lake, query: str, what: str, hint: str) -> None:
    if not what:
        filled.sql(query)
        return
    with pytest.raises(QueryError) as wrong:
        filled.sql(query)
    assert what in wrong.value.what and hint in wrong.value.hint and wrong.value.value == query
    assert "\n" not in wrong.value.what


def test_parameters_are_given_by_name_or_in_order(filled: Lake) -> None:
    assert filled.sql("select count(*) as n from turns where episode_id = $id",
                      parameters={"id": "episode-1"}).to_pylist() == [{"n": 1}]
    assert filled.sql("select ? + ? as n", parameters=[1, 2]).to_pylist() == [{"n": 3}]


def test_memory_is_limited_with_a_hint(artifacts: DirectoryStore, tmp_path: Path) -> None:
    lake = open_lake(Settings(home=str(tmp_path), lake_memory_mb=64), artifacts)
    with pytest.raises(QueryError, match="more memory") as refused:
        lake.sql("select list(i) as l from range(100000000) t(i)")
    assert "memory" in refused.value.hint


def test_results_may_come_in_pieces(filled: Lake) -> None:
    pieces = filled.batches("select * from range(10000)", rows=2048)
    gc.collect()
    assert sum(piece.num_rows for piece in pieces) == 10000


def test_reading_makes_nothing(lake: Lake, settings: Settings) -> None:
    assert rows(lake, "select count(*) from dispositions") == [(0,)]
    assert lake.snapshot() == {} and lake.identity == ""
    assert not Path(settings.home).exists()


def test_a_broken_table_is_a_lake_error(filled: Lake, settings: Settings, artifacts: DirectoryStore) -> None:
    log = filled.root / "events" / "_delta_log" / "00000000000000000001.json"
    log.write_bytes(b"{")
    with pytest.raises(LakeError, match="cannot be"):
        open_lake(settings, artifacts).sql("select * from events")


def test_a_lost_file_is_a_lake_error(filled: Lake, settings: Settings, artifacts: DirectoryStore) -> None:
    next((filled.root / "turns").glob("*.parquet")).unlink()
    with pytest.raises(LakeError, match="cannot be read"):
        open_lake(settings, artifacts).sql("select * from turns")


def test_ctrl_c_ends_a_query_that_would_not_end(filled: Lake) -> None:
    ctrl_c = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # A background job starts with SIGINT ignored.
    try:
        with pytest.raises(KeyboardInterrupt):
            ctrl_c.start()
            filled.sql("select sum(i) from range(1000000000000) t(i)")
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("name", ["a b", "[x]", "*", "?", "it's \"quoted\"", "ü", "#", "100%", "a=b&c"])
def test_a_lake_may_lie_in_a_folder_of_any_name(
        tmp_path: Path, artifacts: DirectoryStore, story: Story, name: str) -> None:
    whole_story(story)
    home = tmp_path / name
    home.mkdir()
    lake = open_lake(Settings(home=str(home)), artifacts)
    pour(lake, artifacts, records_of(story.told), size=10)
    lake.compact()
    assert rows(open_lake(Settings(home=str(home)), artifacts), "select count(*) from events") == [(len(story.told),)]
    assert lake.verify() == []


@pytest.mark.parametrize("name", ["50%25", "a\\b", "a\nb", "a\x7f"])
def test_a_path_that_the_library_would_take_for_another_is_refused(
        tmp_path: Path, artifacts: DirectoryStore, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot lie where"):
        open_lake(Settings(home=str(tmp_path / name)), artifacts)
