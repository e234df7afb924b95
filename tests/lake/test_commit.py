"""The exactly-once commit: replays, crashes between tables, two writers, a zombie, another log."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from artifacts.store import DirectoryStore
from consumers.folding import Folding
from lake import open_lake
from lake.lake import Lake
from lake.tables import WriterTable
from schemas.envelope import Position, RawRecord, Record
from schemas.errors import CommitConflictError, LakeError
from schemas.settings import Settings
from schemas.tables import COMMIT_ORDER
from tests.lake.histories import IDENTITY, Story, flush_of, pour, records_of, rows, whole_story


def told(story: Story) -> list[Record]:
    whole_story(story)
    unreadable = RawRecord(b"k", b"v", (), story.time_us, "header ce_id is missing")
    return [*records_of(story.told), Record(Position("dead-letters", 0, 0), None, unreadable)]


def contents(lake: Lake) -> dict[str, list[tuple[object, ...]]]:
    return {name: sorted(rows(lake, f"select * from raw_{name}"), key=repr) for name in COMMIT_ORDER}


Contents = Callable[[list[Record]], object]


@pytest.fixture
def undisturbed(artifacts: DirectoryStore, tmp_path_factory: pytest.TempPathFactory) -> Contents:
    def make(records: list[Record]) -> object:
        home = tmp_path_factory.mktemp("undisturbed")
        lake = open_lake(Settings(home=str(home)), artifacts)
        pour(lake, artifacts, records)
        return contents(lake)

    return make


def test_all_rows_arrive_once_whatever_the_flush_size(
        settings: Settings, artifacts: DirectoryStore, lake: Lake, story: Story,
        undisturbed: Contents) -> None:
    records = told(story)
    pour(lake, artifacts, records, size=7)
    assert contents(lake) == undisturbed(records)
    assert sum(lake.positions().values()) == len(records)
    assert lake.verify() == []


def test_a_replayed_flush_adds_nothing(lake: Lake, artifacts: DirectoryStore, story: Story) -> None:
    records = told(story)
    pour(lake, artifacts, records)
    before = contents(lake)
    fresh = open_lake(Settings(home=str(lake.root.parent)), artifacts)
    fresh.bind(IDENTITY)
    with pytest.raises(CommitConflictError):
        fresh.commit(*flush_of(Folding(artifacts), records))
    assert contents(lake) == before


@pytest.mark.parametrize("died_after", ["requests", "turns", "batch_rows", "dead_letters"])
def test_a_crash_between_two_tables_is_made_good(
        lake: Lake, artifacts: DirectoryStore, story: Story, undisturbed: Contents,
        monkeypatch: pytest.MonkeyPatch, died_after: str) -> None:
    records = told(story)
    tables, start, end = flush_of(Folding(artifacts), records)
    assert set(COMMIT_ORDER) - {"redrives"} == set(tables)  # Those are made by hand, not by a flush.
    lake.bind(IDENTITY)

    def die(name: str) -> None:
        if name == f"sink:after_table:{died_after}":
            raise KeyboardInterrupt

    monkeypatch.setattr("lake.commit.hit", die)
    with pytest.raises(KeyboardInterrupt):
        lake.commit(tables, start, end)
    monkeypatch.undo()
    assert lake.positions() == {}

    restarted = open_lake(Settings(home=str(lake.root.parent)), artifacts)
    pour(restarted, artifacts, records, size=11)  # Other flush boundaries than before the crash.
    assert contents(restarted) == undisturbed(records)
    assert restarted.verify() == []


def test_of_two_writers_of_the_same_offsets_one_is_refused(
        settings: Settings, artifacts: DirectoryStore, story: Story) -> None:
    records = told(story)
    one, two = open_lake(settings, artifacts), open_lake(settings, artifacts)
    for lake in (one, two):
        lake.bind(IDENTITY)
    first, rest = records[:6], records[6:]
    foldings = Folding(artifacts), Folding(artifacts)
    one.commit(*flush_of(foldings[0], first))
    flush_of(foldings[1], first)
    second = flush_of(foldings[1], rest)
    two.positions()
    two.commit(*second)
    with pytest.raises(CommitConflictError):
        one.commit(*flush_of(foldings[0], rest))
    assert len(rows(one, "select * from events")) == len(records) - 1
    assert one.verify() == []


def test_a_stale_handle_loses_even_where_it_checked_before(
        settings: Settings, artifacts: DirectoryStore, story: Story) -> None:
    """The zombie between its check and its write: only the compare-and-set of the table itself can stop it."""
    records = told(story)
    lake = open_lake(settings, artifacts)
    pour(lake, artifacts, records[:4])
    part = ("trajectories", records[-1].position.partition)
    zombie, other = (WriterTable(lake.folder, "events", IDENTITY) for _ in range(2))
    tables, _, _ = flush_of(Folding(artifacts), records[4:8])
    assert zombie.position(part) == other.position(part)
    other.append(tables["events"], {part: 100})
    assert zombie.position(part) != 100
    with pytest.raises(CommitConflictError):
        zombie.append(tables["events"], {part: 100})


def test_positions_are_asked_again_after_somebody_else_committed(
        settings: Settings, artifacts: DirectoryStore, story: Story) -> None:
    """A handle that moved over another's commit would let an old position pass."""
    records = told(story)
    lake = open_lake(settings, artifacts)
    pour(lake, artifacts, records[:4])
    one, other = (WriterTable(lake.folder, "events", IDENTITY) for _ in range(2))
    nothing = flush_of(Folding(artifacts), records[:1])[0]["events"].slice(0, 0)
    left, right = ("scores", 0), ("scores", 1)
    assert one.position(left) is None and one.position(right) is None
    other.append(nothing, {left: 50})
    one.append(nothing, {right: 10})
    assert one.position(left) == 50
    assert one.position(right) == 10


def test_a_flush_must_start_where_the_lake_stands(lake: Lake, artifacts: DirectoryStore, story: Story) -> None:
    records = told(story)
    pour(lake, artifacts, records[:4])
    partition = records[4].position
    gap = [record for record in records if record.position[:2] == partition[:2]][-1:]
    tables, start, end = flush_of(Folding(artifacts), gap)
    with pytest.raises(CommitConflictError, match="stands elsewhere"):
        lake.commit(tables, {part: offset + 1 for part, offset in start.items()},
                    {part: offset + 1 for part, offset in end.items()})


def test_the_first_flush_of_a_lake_starts_at_the_beginning(
        lake: Lake, artifacts: DirectoryStore, story: Story) -> None:
    records = told(story)
    folding = Folding(artifacts)
    flush_of(folding, records[:6])
    lake.bind(IDENTITY)
    with pytest.raises(CommitConflictError, match="stands elsewhere"):
        lake.commit(*flush_of(folding, records[6:]))
    assert lake.positions() == {} and contents(lake)["events"] == []


def test_another_log_is_refused(lake: Lake, artifacts: DirectoryStore, story: Story) -> None:
    pour(lake, artifacts, told(story))
    fresh = open_lake(Settings(home=str(lake.root.parent)), artifacts)
    assert fresh.identity == IDENTITY
    with pytest.raises(LakeError, match="copy of another log") as refused:
        fresh.bind("log-2")
    assert refused.value.hint and "log-2" in str(refused.value)


def test_nothing_is_written_without_a_log(lake: Lake) -> None:
    with pytest.raises(LakeError, match="not bound"):
        lake.commit({}, {("tasks", 0): 0}, {("tasks", 0): 1})


def test_a_home_that_cannot_be_written_is_a_clear_error(tmp_path: object, artifacts: DirectoryStore) -> None:
    lake = open_lake(Settings(home="/proc/nothing"), artifacts)
    assert rows(lake, "select count(*) from events") == [(0,)]
    with pytest.raises(LakeError, match="cannot be made"):
        lake.bind(IDENTITY)
