"""The exactly-once commit, in a directory and in S3-compatible storage: replays, crashes between tables, two writers, a
zombie, another log, a table that is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

import pytest

from artifacts.folder import Folder
from artifacts.store import ArtifactStore
from consumers.folding import Folding
from lake import open_lake
from lake.lake import Lake
from lake.writer import WriterTable
from schemas.envelope import Position, RawRecord, Record
from schemas.errors import CommitConflictError, LakeError
from schemas.settings import Settings
from schemas.tables import COMMIT_ORDER
from tests.lake.conftest import STORAGES
from tests.lake.histories import IDENTITY, Story, flush_of, pour, records_of, rows, whole_story


@pytest.fixture(params=STORAGES)
def storage(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def told(story: Story) -> list[Record]:
    whole_story(story)
    unreadable = RawRecord(b"k", b"v", (), story.time_us, "header ce_id is missing")
    return [*records_of(story.told), Record(Position("dead-letters", 0, 0), None, unreadable)]


def contents(lake: Lake) -> dict[str, list[tuple[object, ...]]]:
    return {name: sorted(rows(lake, f"select * from raw_{name}"), key=repr) for name in COMMIT_ORDER}


Contents = Callable[[list[Record]], object]


@pytest.fixture
def undisturbed(artifacts: ArtifactStore, tmp_path_factory: pytest.TempPathFactory) -> Contents:
    def make(records: list[Record]) -> object:
        home = tmp_path_factory.mktemp("undisturbed")
        lake = open_lake(Settings(home=str(home)), artifacts)
        pour(lake, artifacts, records)
        return contents(lake)

    return make


def test_all_rows_arrive_once_whatever_the_flush_size(
        settings: Settings, artifacts: ArtifactStore, lake: Lake, story: Story,
        undisturbed: Contents) -> None:
    records = told(story)
    pour(lake, artifacts, records, size=13)
    assert contents(lake) == undisturbed(records)
    assert sum(lake.positions().values()) == len(records)
    assert lake.verify() == []


def test_a_replayed_flush_adds_nothing(
        settings: Settings, lake: Lake, artifacts: ArtifactStore, story: Story) -> None:
    records = told(story)
    pour(lake, artifacts, records)
    before = contents(lake)
    fresh = open_lake(settings, artifacts)
    fresh.bind(IDENTITY)
    with pytest.raises(CommitConflictError):
        fresh.commit(*flush_of(Folding(artifacts), records))
    assert contents(lake) == before


@pytest.mark.parametrize("died_after", ["requests", "turns", "dead_letters"])
def test_a_crash_between_two_tables_is_made_good(
        settings: Settings, lake: Lake, artifacts: ArtifactStore, story: Story, undisturbed: Contents,
        monkeypatch: pytest.MonkeyPatch, died_after: str) -> None:
    records = told(story)
    tables, start, end = flush_of(Folding(artifacts), records)
    assert set(COMMIT_ORDER) - {"redrives"} == set(tables)  # Those are made by hand, not by a flush.
    lake.bind(IDENTITY)

    def die(name: str) -> None:
        if name == f"sink:after_table:{died_after}":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("lake.commit.hit", die)
        lake.commit(tables, start, end)
    assert lake.positions() == {}

    restarted = open_lake(settings, artifacts)
    pour(restarted, artifacts, records, size=17)  # Other flush boundaries than before the crash.
    assert contents(restarted) == undisturbed(records)
    assert restarted.verify() == []


def test_of_two_writers_of_the_same_offsets_one_is_refused(
        settings: Settings, artifacts: ArtifactStore, story: Story) -> None:
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
        settings: Settings, artifacts: ArtifactStore, story: Story) -> None:
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
        settings: Settings, artifacts: ArtifactStore, story: Story) -> None:
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


def test_a_flush_must_start_where_the_lake_stands(lake: Lake, artifacts: ArtifactStore, story: Story) -> None:
    records = told(story)
    pour(lake, artifacts, records[:4])
    partition = records[4].position
    gap = [record for record in records if record.position[:2] == partition[:2]][-1:]
    tables, start, end = flush_of(Folding(artifacts), gap)
    with pytest.raises(CommitConflictError, match="stands elsewhere"):
        lake.commit(tables, {part: offset + 1 for part, offset in start.items()},
                    {part: offset + 1 for part, offset in end.items()})


def test_the_first_flush_of_a_lake_starts_at_the_beginning(
        lake: Lake, artifacts: ArtifactStore, story: Story) -> None:
    records = told(story)
    folding = Folding(artifacts)
    flush_of(folding, records[:6])
    lake.bind(IDENTITY)
    with pytest.raises(CommitConflictError, match="stands elsewhere"):
        lake.commit(*flush_of(folding, records[6:]))
    assert lake.positions() == {} and contents(lake)["events"] == []


def test_another_log_is_refused(
        settings: Settings, lake: Lake, artifacts: ArtifactStore, story: Story) -> None:
    pour(lake, artifacts, told(story))
    fresh = open_lake(settings, artifacts)
    assert fresh.identity == IDENTITY
    with pytest.raises(LakeError, match="copy of another log") as refused:
        fresh.bind("log-2")
    assert refused.value.hint and "log-2" in str(refused.value)


def test_nothing_is_written_without_a_log(lake: Lake) -> None:
    with pytest.raises(LakeError, match="not bound"):
        lake.commit({}, {("tasks", 0): 0}, {("tasks", 0): 1})


def remove(folder: Folder) -> None:
    for stored in list(folder.list()):
        folder.remove(stored.name)


def test_a_table_that_was_deleted_is_told_before_anything_is_written(
        settings: Settings, lake: Lake, artifacts: ArtifactStore, story: Story) -> None:
    records = told(story)
    folding = Folding(artifacts)
    lake.bind(IDENTITY)
    lake.commit(*flush_of(folding, records[:30]))
    flush = flush_of(folding, records[30:])
    at = lake.positions()
    late = open_lake(settings, artifacts)
    late.bind(IDENTITY)
    remove(lake.tables.at("turns"))
    fresh = open_lake(settings, artifacts)
    for step in (lambda: lake.commit(*flush), lambda: late.commit(*flush), lambda: fresh.bind(IDENTITY),
                 lambda: fresh.sql("select * from turns")):
        with pytest.raises(LakeError) as lost:
            step()
        assert "lake rebuild" in lost.value.hint and lost.value.where.endswith("/turns")
    assert fresh.positions() == at and not list(lake.tables.at("turns").list("_delta_log/"))
    assert rows(fresh, "select count(*) from requests")


def test_a_lake_that_was_deleted_under_a_sink_is_told(
        lake: Lake, artifacts: ArtifactStore, story: Story) -> None:
    records = told(story)
    folding = Folding(artifacts)
    lake.bind(IDENTITY)
    lake.commit(*flush_of(folding, records[:30]))
    remove(lake.folder)
    with pytest.raises(LakeError, match="the table is gone") as lost:
        lake.commit(*flush_of(folding, records[30:]))
    assert "lake rebuild" in lost.value.hint


def test_a_table_that_lost_its_newest_entries_is_told(
        settings: Settings, lake: Lake, artifacts: ArtifactStore, story: Story) -> None:
    records = told(story)
    pour(lake, artifacts, records, size=11)
    log = lake.tables.at("turns/_delta_log")
    log.remove(max(stored.name for stored in log.list()))
    with pytest.raises(LakeError, match="lost rows") as lost:
        open_lake(settings, artifacts).bind(IDENTITY)
    assert "lake rebuild" in lost.value.hint


def test_two_sinks_share_the_partitions_without_a_conflict(
        settings: Settings, artifacts: ArtifactStore, story: Story, undisturbed: Contents) -> None:
    """What `events` says of the other tables is said by partition, so sinks of different partitions do not meet."""
    records = told(story)
    sinks = [open_lake(settings, artifacts) for _ in range(2)]
    shares = [[record for record in records if record.position.partition % 2 == number] for number in range(2)]
    for lake in sinks:
        lake.bind(IDENTITY)
    folding = Folding(artifacts)
    for first in range(0, len(records), 15):
        for lake, share in zip(sinks, shares, strict=True):
            if share[first:first + 15]:
                lake.commit(*flush_of(folding, share[first:first + 15]))
    assert contents(sinks[0]) == undisturbed(records)
    assert sinks[1].verify() == []


def test_many_sinks_at_once_write_every_row_once(
        settings: Settings, artifacts: ArtifactStore, story: Story, undisturbed: Contents) -> None:
    """Each tries to write everything; whoever is refused starts over from where the lake stands."""
    records = told(story)
    open_lake(settings, artifacts).bind(IDENTITY)
    together = threading.Barrier(3)
    failures: list[BaseException] = []

    def sink() -> None:
        try:
            together.wait()
            _write_all(open_lake(settings, artifacts), artifacts, records)
        except BaseException as wrong:
            failures.append(wrong)

    threads = [threading.Thread(target=sink) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    lake = open_lake(settings, artifacts)
    assert contents(lake) == undisturbed(records)
    assert lake.verify() == []


def _write_all(lake: Lake, artifacts: ArtifactStore, records: list[Record]) -> None:
    lake.bind(IDENTITY)
    while True:
        at = lake.positions()
        folding = Folding(artifacts)
        done = [record for record in records if record.position.offset < at.get(part_of(record), 0)]
        if len(done) == len(records):
            return
        flush_of(folding, done)
        left = [record for record in records if record.position.offset >= at.get(part_of(record), 0)]
        with suppress(CommitConflictError):
            lake.commit(*flush_of(folding, left[:15]))


def part_of(record: Record) -> tuple[str, int]:
    return record.position.topic, record.position.partition
