"""Compaction: rows stay the same, two at once do not double them, readers and sinks go on meanwhile."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from artifacts.local_folder import LocalFolder
from artifacts.store import DirectoryStore
from consumers.folding import Folding
from lake import open_lake, tablelog
from lake.compaction import MAX_FILES, all_small, due, groups, merge
from lake.files import LiveFile, live_files
from lake.lake import Lake
from lake.relations import empty_columns
from lake.tablelog import TableLog
from lake.tables import identity_of, open_table
from lake.transactions import application, read_transactions
from lake.writer import WriterTable
from schemas import tables
from schemas.envelope import Record
from schemas.errors import CommitConflictError, LakeError
from schemas.settings import Settings
from tests.lake.histories import IDENTITY, Story, flush_of, pour, records_of, rows, whole_story


def many(story: Story, flushes: int) -> list[Record]:
    for number in range(flushes):
        story.start(f"e{number}")
        story.turn(f"e{number}")
    return records_of(story.told)


def everything(lake: Lake) -> list[list[tuple[object, ...]]]:
    return [sorted(rows(lake, f"select * from raw_{name}"), key=repr) for name in ("turns", "events")]


def test_files_stay_few_and_rows_the_same(lake: Lake, artifacts: DirectoryStore, story: Story, tmp_path: Path) -> None:
    records = many(story, 40)
    lake.bind(IDENTITY)
    folding = Folding(artifacts)
    for first in range(0, len(records), 2):
        lake.commit(*flush_of(folding, records[first:first + 2]))
        lake.maintain()
    for name in ("turns", "events"):
        assert len(live_files(open_table(lake.folder, name))) <= MAX_FILES + 1
    undisturbed = open_lake(Settings(home=str(tmp_path / "other")), artifacts)
    pour(undisturbed, artifacts, records)
    assert everything(lake) == everything(undisturbed)
    assert lake.positions() == undisturbed.positions()
    lake.compact()
    assert len(live_files(open_table(lake.folder, "events"))) == 1
    assert everything(lake) == everything(undisturbed)
    assert lake.verify() == []


def test_of_two_compactions_of_the_same_files_one_fails(lake: Lake, artifacts: DirectoryStore, story: Story) -> None:
    """The library's own compaction would let both succeed and double every row."""
    pour(lake, artifacts, many(story, 10), size=4)
    before = everything(lake)
    one, other = (TableLog(lake.folder, "events") for _ in range(2))
    files = all_small(one.files)
    merge(one, files)
    with pytest.raises(CommitConflictError):
        merge(other, files)
    assert everything(lake) == before


def test_a_sink_goes_on_while_another_process_compacts(lake: Lake, artifacts: DirectoryStore, story: Story) -> None:
    records = many(story, 10)
    folding = Folding(artifacts)
    lake.bind(IDENTITY)
    other = open_lake(Settings(home=str(lake.root.parent)), artifacts)
    for first in range(0, len(records), 4):
        lake.commit(*flush_of(folding, records[first:first + 4]))
        other.compact()
    assert len(everything(lake)[1]) == len(records)
    assert lake.verify() == []


def test_a_compaction_that_reads_other_rows_changes_nothing(
        lake: Lake, artifacts: DirectoryStore, story: Story) -> None:
    pour(lake, artifacts, many(story, 4), size=4)
    log = TableLog(lake.folder, "events")
    files = log.files
    short = lake.root / "events" / files[0].path
    table = pq.read_table(short)
    pq.write_table(table.slice(1), short)
    with pytest.raises(LakeError, match="not as it was written; nothing was changed"):
        merge(log, files)
    with pytest.raises(LakeError, match="another number of rows than the table tells; nothing was changed"):
        merge(log, [files[0]._replace(size=short.stat().st_size), *files[1:]])
    assert live_files(open_table(lake.folder, "events")) == files


def test_a_reader_never_fails_while_sink_and_compaction_write(
        lake: Lake, artifacts: DirectoryStore, story: Story) -> None:
    records = many(story, 40)
    done = threading.Event()
    failures: list[BaseException] = []
    seen: list[int] = []

    def read() -> None:
        reader = open_lake(Settings(home=str(lake.root.parent)), artifacts)
        try:
            while not done.is_set():
                events, turns, admitted = rows(reader, """select count(*), (select count(*) from turns),
                    count(*) filter (type = 'turn.generated') from events""")[0]
                assert turns == admitted
                seen.append(events)
        except BaseException as wrong:
            failures.append(wrong)

    thread = threading.Thread(target=read)
    thread.start()
    folding = Folding(artifacts)
    lake.bind(IDENTITY)
    for first in range(0, len(records), 2):
        lake.commit(*flush_of(folding, records[first:first + 2]))
        lake.maintain()
    lake.compact()
    done.set()
    thread.join()
    assert not failures
    assert seen == sorted(seen) and len(set(seen)) > 2


def test_positions_are_read_as_the_library_reads_them(lake: Lake, artifacts: DirectoryStore, story: Story) -> None:
    """Over a checkpoint, and one commit at a time."""
    lake.bind(IDENTITY)
    table = WriterTable(lake.folder, "events", IDENTITY)
    nothing = tables.TABLES["events"].empty_table()
    known = None
    for number in range(1, 125):
        part = ("scores", number % 3)
        table.append(nothing, {part: number})
        if number % 20 == 0:
            handle = open_table(lake.folder, "events")
            log = lake.folder.at("events/_delta_log")
            known = read_transactions(log, handle.version(), known)
            fresh = read_transactions(log, handle.version())
            names = [application(IDENTITY, ("scores", index)) for index in range(3)]
            assert known.entries == fresh.entries == {name: handle.transaction_version(name) for name in names}
            assert table.log().transactions == fresh.entries and table.log().version == handle.version()
    assert lake.folder.size("events/_delta_log/_last_checkpoint")


def test_a_column_that_is_added_later_is_null_in_old_rows(
        lake: Lake, artifacts: DirectoryStore, story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    records = many(story, 4)
    folding = Folding(artifacts)
    made, start, end = flush_of(folding, records[:4])
    newer = tables.TABLES["turns"]
    older = pa.schema([field for field in newer if field.name != "prefix"])
    monkeypatch.setitem(tables.TABLES, "turns", older)
    lake.bind(IDENTITY)
    lake.commit({**made, "turns": made["turns"].select(older.names)}, start, end)
    assert "prefix" not in lake.sql("select * from turns").column_names
    monkeypatch.setitem(tables.TABLES, "turns", newer)
    empty_columns.cache_clear()
    assert rows(lake, "select count(*), count(prefix) from turns") == [(2, 0)]
    again = open_lake(Settings(home=str(lake.root.parent)), artifacts)
    again.bind(IDENTITY)
    again.commit(*flush_of(folding, records[4:]))
    assert rows(again, "select count(*), count(prefix) from turns") == [(4, 2)]
    again.compact()
    assert rows(again, "select count(*), count(prefix) from turns") == [(4, 2)]


def test_token_columns_are_encoded_for_what_they_are(lake: Lake, artifacts: DirectoryStore, story: Story) -> None:
    whole_story(story)
    pour(lake, artifacts, records_of(story.told))
    file = next((lake.root / "turns").glob("*.parquet"))
    group = pq.ParquetFile(file).metadata.row_group(0)
    columns = {group.column(index).path_in_schema: group.column(index) for index in range(group.num_columns)}
    assert "BYTE_STREAM_SPLIT" in columns["logprobs.list.element"].encodings
    assert "RLE_DICTIONARY" in columns["generated_tokens.list.element"].encodings
    assert {column.compression for column in columns.values()} == {"ZSTD"}


def test_a_merged_file_is_large_enough_to_be_left_alone() -> None:
    """Else every compaction would write the largest files anew."""
    files = [LiveFile(f"{number}", (20 << 20) + number, 1) for number in range(MAX_FILES + 1)]
    assert due(files) == all_small(files) == files
    merged = [LiveFile("merged", sum(file.size for file in group), 1) for group in groups(files)]
    assert all_small(merged[:-1]) == []
    assert max(file.size for file in merged) <= 128 << 20


def test_a_log_that_is_followed_says_what_the_library_says(
        lake: Lake, artifacts: DirectoryStore, story: Story) -> None:
    """Files, positions and identity after every commit, merge and checkpoint, as if the table were opened anew."""
    followed = None
    records = many(story, 30)
    folding = Folding(artifacts)
    lake.bind(IDENTITY)
    for first in range(0, len(records), 3):
        lake.commit(*flush_of(folding, records[first:first + 3]))
        lake.maintain()
        followed = followed or TableLog(lake.folder, "events")
        followed.follow()
        if first % 60 == 0:
            lake.compact()
            followed.follow()
            handle = open_table(lake.folder, "events")
            assert sorted(followed.files) == sorted(live_files(handle))
            assert (followed.version, followed.identity) == (handle.version(), identity_of(handle))
            assert followed.transactions == {
                name: handle.transaction_version(name) for name in followed.transactions}


def test_commits_of_others_that_touch_nothing_of_ours_do_not_stop_us(lake: Lake) -> None:
    lake.bind(IDENTITY)
    one, other = (TableLog(lake.folder, "events") for _ in range(2))
    for number in range(1, 6):
        other.commit([], {"other": number})
    one.commit([], {"one": 1})
    assert one.transactions == {"one": 1, "other": 5} and one.version == 6
    with pytest.raises(CommitConflictError):
        other.commit([], {"one": 1})
    gone = TableLog(lake.folder, "events")
    shutil.rmtree(lake.root / "events")
    with pytest.raises(LakeError, match="gone"):
        gone.commit([], {"one": 2})


def test_a_commit_touches_its_own_entry_and_the_one_it_builds_on(
        lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library would list the log: the more commits there were, the longer a commit and a query would take."""
    lake.bind(IDENTITY)
    log = TableLog(lake.folder, "events")
    for number in range(1, 20):
        log.commit([], {"ours": number})
    asked: list[str] = []
    for name in ("list", "size", "read", "create", "sync"):
        method = getattr(LocalFolder, name)

        def counted(self: LocalFolder, *given: Any, name: str = name, method: Any = method) -> Any:
            asked.append(name)
            return method(self, *given)

        monkeypatch.setattr(LocalFolder, name, counted)
    monkeypatch.setattr(tablelog, "open_table", None)
    log.commit([], {"ours": 5000})
    assert asked == ["size", "create"]
    asked.clear()
    assert not log.follow() and asked == ["read"]


def test_rows_that_compress_to_nothing_are_rewritten_as_seldom_as_others() -> None:
    """Ten thousand flushes of alike rows: however small their files stay, they leave their class."""
    files: list[LiveFile] = []
    rewritten = most = 0
    for number in range(10_000):
        files.append(LiveFile(str(number), 26_000, 20))
        while tier := due(files):
            rewritten += sum(file.rows or 0 for file in tier)
            merged = [LiveFile(f"{number}-{index}", 40_000, sum(file.rows or 0 for file in group))
                      for index, group in enumerate(groups(tier))]
            files = [file for file in files if file not in tier] + merged
        most = max(most, len(files))
    assert sum(file.rows or 0 for file in files) == 200_000
    assert rewritten <= 5 * 200_000 and most <= 64
