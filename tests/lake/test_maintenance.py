"""Compaction: rows stay the same, two at once do not double them, readers and sinks go on meanwhile."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from artifacts.store import DirectoryStore
from consumers.folding import Folding
from lake import open_lake
from lake.compaction import MAX_FILES, all_small, due, groups, merge
from lake.files import LiveFile, live_files
from lake.lake import Lake
from lake.relations import empty_columns
from lake.tables import WriterTable, open_table
from lake.transactions import application, read_transactions
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
    handles = [open_table(lake.folder, "events") for _ in range(2)]
    files = all_small(live_files(handles[0]))
    merge(handles[0], lake.folder.at("events"), files)
    with pytest.raises(CommitConflictError):
        merge(handles[1], lake.folder.at("events"), files)
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
    handle = open_table(lake.folder, "events")
    files = live_files(handle)
    short = lake.root / "events" / files[0].path
    table = pq.read_table(short)
    pq.write_table(table.slice(1), short)
    with pytest.raises(LakeError, match="nothing was changed"):
        merge(handle, lake.folder.at("events"), files)
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
