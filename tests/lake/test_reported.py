"""What others reported of sinks and lakes of other makes, tried on ours: each test names the threads."""

from __future__ import annotations

import json
import logging
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import apsw
import pytest

from artifacts.store import ArtifactStore
from consumers.folding import Folding
from consumers.sink import Sink
from lake import open_lake
from lake.content import content
from lake.doctor import examine
from lake.gaps import gaps, lost
from lake.lake import Lake
from lake.vacuum import vacuum
from schemas.errors import CommitConflictError, HeadraceError, LakeError
from schemas.settings import Settings
from schemas.topics import TRAJECTORIES
from tests.lake.histories import IDENTITY, Story, flush_of, pour, records_of, rows, whole_story
from tests.lake.worlds import World


@pytest.fixture
def filled(lake: Lake, artifacts: ArtifactStore, story: Story) -> Lake:
    whole_story(story)
    pour(lake, artifacts, records_of(story.told), size=12)
    return lake


def log_of(lake: Lake, table: str) -> Path:
    return lake.root / table / "_delta_log"


def reopened(lake: Lake, settings: Settings) -> Lake:
    return open_lake(settings, lake.artifacts)


# Checkpoints.


def test_a_writer_that_died_between_checkpoint_and_its_pointer_harms_nobody(filled: Lake, settings: Settings) -> None:
    """delta-io/delta-rs#2258, delta-io/kafka-delta-ingest#184."""
    before = content(filled)
    filled.compact()
    old = (log_of(filled, "turns") / "_last_checkpoint").read_text()
    filled.bind(IDENTITY)
    (log_of(filled, "turns") / "_last_checkpoint").unlink()
    assert content(reopened(filled, settings)) == before and examine(filled) == []
    (log_of(filled, "turns") / "_last_checkpoint").write_text(old)
    filled.compact()
    assert content(reopened(filled, settings)) == before


def empty(path: Path) -> None:
    path.write_bytes(b"")


def halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:path.stat().st_size // 2])


@pytest.mark.parametrize("spoil", [empty, halve, Path.unlink])
def test_a_lost_checkpoint_is_healed_as_the_doctor_says(
        filled: Lake, settings: Settings, spoil: Callable[[Path], None]) -> None:
    """delta-io/delta#5458, #5895: a table that could not be opened any more, although all its entries are there."""
    before = content(filled)
    filled.compact()
    for checkpoint in log_of(filled, "turns").glob("*.checkpoint.parquet"):
        spoil(checkpoint)
    spoiled = reopened(filled, settings)
    with pytest.raises(LakeError):
        content(spoiled)
    advice = [finding.action for finding in examine(spoiled) if finding.where.startswith("turns/_delta_log/")]
    assert any("remove" in action for action in advice), advice
    for file in (*log_of(filled, "turns").glob("*.checkpoint.parquet"), log_of(filled, "turns") / "_last_checkpoint"):
        file.unlink()
    healed = reopened(filled, settings)
    assert content(healed) == before and examine(healed) == [] and healed.verify() == []


def test_no_checkpoint_is_made_of_entries_that_cannot_be_read(filled: Lake, settings: Settings) -> None:
    """delta-io/delta#7174: one that held half of the table and looked whole."""
    entry = sorted(log_of(filled, "events").glob("*.json"))[1]
    entry.write_bytes(entry.read_bytes()[:100])
    with pytest.raises(LakeError):
        reopened(filled, settings).compact()
    assert list(log_of(filled, "events").glob("*.checkpoint.parquet")) == []


# Positions.


def test_positions_outlive_compaction_checkpoints_and_vacuum(
        filled: Lake, settings: Settings, artifacts: ArtifactStore, story: Story) -> None:
    """apache/iceberg#5846, #6066, #3647: with the old snapshots went what said how far the writer was."""
    at, before = filled.positions(), content(filled)
    filled.compact()
    vacuum(filled, 0, alone=True)
    shutil.rmtree(settings.home + "/.spill", ignore_errors=True)
    again = reopened(filled, settings)
    again.bind(IDENTITY)
    assert again.positions() == at
    with pytest.raises(CommitConflictError):
        again.commit(*flush_of(Folding(artifacts), records_of(story.told)))
    assert content(again) == before


def test_a_flush_without_rows_moves_its_partition_and_no_other(lake: Lake) -> None:
    """apache/hudi#1377: an empty commit wrote an empty position, and reading began anew."""
    lake.bind(IDENTITY)
    one, other = (TRAJECTORIES, 0), (TRAJECTORIES, 1)
    lake.commit({}, {one: 0}, {one: 7})
    lake.commit({}, {other: 0}, {other: 3})
    lake.compact()
    lake.commit({}, {other: 3}, {other: 4})
    assert lake.positions() == {one: 7, other: 4}


def test_a_writer_that_remembers_an_older_position_cannot_take_the_lake_back(
        lake: Lake, artifacts: ArtifactStore, story: Story) -> None:
    """apache/iceberg#17551, #17552, #13995: offsets went to and fro between two coordinators."""
    whole_story(story)
    records = [record for record in records_of(story.told, 1) if record.position.topic == TRAJECTORIES]
    lake.bind(IDENTITY)
    folding = Folding(artifacts)
    older = flush_of(folding, records[:4])
    lake.commit(*older)
    lake.commit(*flush_of(folding, records[4:9]))
    at = lake.positions()
    for stale in (older, (older[0], {(TRAJECTORIES, 0): 2}, {(TRAJECTORIES, 0): 4}),
                  ({}, {(TRAJECTORIES, 0): 4}, {(TRAJECTORIES, 0): 5})):
        with pytest.raises(CommitConflictError):
            lake.commit(*stale)
    assert lake.positions() == at and rows(lake, "select count(*) from events") == [(9,)]


# Files and entries.


def test_a_file_that_two_entries_name_counts_once(filled: Lake, settings: Settings) -> None:
    """apache/iceberg#16282, #13763: a recovering coordinator registered a file again."""
    before = content(filled)
    entries = sorted(log_of(filled, "turns").glob("*.json"))
    add = next(line for entry in entries for line in entry.read_text().splitlines() if '"add"' in line)
    (log_of(filled, "turns") / f"{len(entries):020d}.json").write_text(add + "\n")
    assert content(filled) == content(reopened(filled, settings)) == before
    assert filled.verify() == [] == reopened(filled, settings).verify()


def test_a_vacuum_spares_what_entries_name_though_a_checkpoint_does_not(
        filled: Lake, settings: Settings) -> None:
    """delta-io/delta-rs#3392, delta-io/delta#133: files went that some account of the table still named."""
    import pyarrow.parquet as pq

    filled.compact()
    checkpoint = next(log_of(filled, "turns").glob("*.checkpoint.parquet"))
    whole = pq.read_table(checkpoint)
    pq.write_table(whole.filter(whole["add"].is_null()), checkpoint)
    files = sorted(filled.root.glob("turns/*.parquet"))
    with pytest.raises(LakeError, match="name other files; nothing was changed"):
        vacuum(reopened(filled, settings), 0, alone=True)
    assert sorted(filled.root.glob("turns/*.parquet")) == files


def test_times_of_commits_never_go_back(lake: Lake, settings: Settings, artifacts: ArtifactStore, story: Story,
                                        monkeypatch: pytest.MonkeyPatch) -> None:
    """delta-io/delta#133 asks what a clock that is wrong does: `--as-of` a time looks commits up by their times."""
    from lake.timeline import moments_of, vector_at

    whole_story(story)
    records = records_of(story.told)
    lake.bind(IDENTITY)
    folding, clock, vectors = Folding(artifacts), [2_000_000_000], []
    monkeypatch.setattr("lake.tablelog.time", SimpleNamespace(time_ns=lambda: clock[0] * 1_000_000_000))
    for first, now in ((0, 2_000_000_000), (10, 1_000_000_000), (20, 2_000_000_100), (30, 1_500_000_000)):
        clock[0] = now
        open_lake(settings, artifacts)
        lake.commit(*flush_of(folding, records[first:first + 10]))
        vectors.append(lake.positions())
    times = [moment.at for moment in moments_of(lake.tables)]
    assert times == [2_000_000_000_000, 2_000_000_000_000, 2_000_000_100_000, 2_000_000_100_000]
    assert vector_at(lake, 2_000_000_050_000) == vectors[1] and vector_at(lake, 2_000_000_100_000) == vectors[3]


# Sinks.


class Hindered(logging.Handler):
    """Lets the sink go on once it said that it starts over."""

    def __init__(self, help_it: Callable[[], None]) -> None:
        super().__init__()
        self._help, self.times = help_it, 0

    def emit(self, record: logging.LogRecord) -> None:
        if "starting over" in record.getMessage():
            self.times += 1
            self._help()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "home")


def drained_though(world: World, obstacle: Path) -> int:
    """Sinks all while a file stands where a table's folder should; how often the sink started over."""
    obstacle.parent.mkdir(parents=True, exist_ok=True)
    obstacle.touch()
    hindered = Hindered(lambda: obstacle.unlink(missing_ok=True))
    logging.getLogger("headrace.sink").addHandler(hindered)
    try:
        Sink(world.log, world.lake, world.artifacts, world.settings).run(threading.Event(), until_idle=True)
    finally:
        logging.getLogger("headrace.sink").removeHandler(hindered)
    return hindered.times


def test_a_first_flush_that_fails_is_not_skipped(world: World) -> None:
    """snowflakedb/snowflake-kafka-connector#658, #729; apache/iceberg#13752: no position was written yet, and the next
    batch was taken for the one that was wanted."""
    whole_story(world.story)
    world.append()
    assert drained_though(world, world.lake.root / "turns") > 0
    assert rows(world.lake, "select count(*) from events") == [(len(world.story.told),)]
    assert world.lake.verify() == []
    world.close()


def test_a_gap_in_the_log_does_not_stall_a_sink_that_starts_over(world: World) -> None:
    """snowflakedb/snowflake-kafka-connector#767, #961: offsets that are missing, met after a reset. And
    apache/hudi#5400: what the log lost is passed over, but never in silence."""
    whole_story(world.story)
    world.append()
    connection = apsw.Connection(f"{world.settings.home}/log.db")
    connection.execute("delete from events where offset between 2 and 3 and topic = (select number from topics "
                       "where name = 'trajectories') and partition = 0")
    gone = connection.changes()
    connection.close()
    assert gone == 2 and drained_though(world, world.lake.root / "turns") > 0
    assert world.lake.positions()[TRAJECTORIES, 0] == world.log.ends([TRAJECTORIES])[TRAJECTORIES, 0]
    found = gaps(world.lake)
    assert [(gap.part, gap.first, gap.last) for gap in found] == [((TRAJECTORIES, 0), 2, 3)]
    assert [how for _, how in lost(found, world.inspector)] == [
        "the log does not have them either (rows are gone from the file)"]
    world.close()


def test_two_lakes_of_one_log_keep_their_own_positions(world: World, tmp_path: Path) -> None:
    """snowflakedb/snowflake-kafka-connector#690: a table that was dropped and made anew got only what came later,
    because the reader's own offsets were believed."""
    world.fill()
    before = content(world.lake)
    shutil.rmtree(world.lake.root)
    world.lake = open_lake(world.settings, world.artifacts)
    world.sink()
    assert content(world.lake) == before
    world.close()


def test_an_entry_of_another_writer_is_followed_whatever_else_it_says(filled: Lake, settings: Settings) -> None:
    """delta-io/delta-rs#3066, and actions that newer writers add: what is unknown is passed over, what the protocol
    forbids is refused."""
    at, version = filled.positions(), len(list(log_of(filled, "events").glob("*.json")))
    foreign = [{"commitInfo": {"operation": "OPTIMIZE"}}, {"domainMetadata": {"domain": "x", "configuration": "{}",
                                                                              "removed": False}}]
    (log_of(filled, "events") / f"{version:020d}.json").write_text("".join(json.dumps(one) + "\n" for one in foreign))
    assert filled.positions() == at
    refusal = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["v2Checkpoint"],
                            "writerFeatures": ["v2Checkpoint"]}}
    (log_of(filled, "events") / f"{version + 1:020d}.json").write_text(json.dumps(refusal) + "\n")
    for lake in (filled, reopened(filled, settings)):
        with pytest.raises(HeadraceError, match="more than this version of Headrace understands"):
            lake.positions()
