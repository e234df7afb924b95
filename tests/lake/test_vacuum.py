"""Vacuum removes what nobody can need any more, and nothing else, while everybody goes on."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lake import open_lake
from lake.content import content
from lake.files import live_files, write_file
from lake.journal import list_table
from lake.tables import open_table, write_checkpoint
from lake.vacuum import RETENTION_S, vacuum
from schemas.errors import LakeError, UserError
from schemas.tables import TABLES
from tests.lake.histories import rows
from tests.lake.worlds import World

DAY_S = 86_400.0


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "home")
    world.fill()
    yield world
    world.close()


def age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def test_only_what_is_old_and_in_no_table_goes(world: World) -> None:
    before = content(world.lake)
    folder = world.lake.root / "turns"
    old, young = folder / "old.parquet", folder / "young.parquet"
    part, entry = folder / ".x.part", folder / "_delta_log" / f"{0:020d}.json"
    for path in (old, young, part):
        path.write_bytes(b"half")
    for path in (old, part, entry, *folder.glob("*.parquet")):
        if path != young:
            age(path, RETENTION_S + DAY_S)
    told = vacuum(world.lake, dry_run=True)
    assert {file.file for file in told} == {"old.parquet", ".x.part"} and old.exists()
    assert vacuum(world.lake) == told
    assert not old.exists() and not part.exists() and young.exists() and entry.exists()
    assert content(world.lake) == before and world.lake.verify() == []


def test_a_file_that_left_its_table_stays_for_its_readers(world: World) -> None:
    """However old it is: it left a moment ago."""
    folder = world.lake.root / "events"
    world.story.episode("later")
    world.sink()
    names = [file.path for file in live_files(open_table(world.lake.tables, "events"))]
    world.lake.compact()
    for name in names:
        age(folder / name, 30 * DAY_S)
    assert vacuum(world.lake) == []
    removed = {file.file for file in vacuum(world.lake, 0, alone=True)}
    assert removed >= set(names)
    assert world.lake.verify() == []


def test_a_file_that_a_writer_just_wrote_stays(world: World) -> None:
    """It is in no table yet: its commit comes after the vacuum."""
    made = world.lake.sql("select * from raw_turns")
    name = write_file(world.lake.tables.at("turns"), made.cast(TABLES["turns"])).name
    assert vacuum(world.lake, 3600) == []
    assert (world.lake.root / "turns" / name).exists()
    with pytest.raises(UserError, match="shorter retention than an hour"):
        vacuum(world.lake, 3599)


def test_entries_of_the_log_are_kept_for_ever(world: World) -> None:
    for _ in range(3):
        world.story.episode(f"e{len(world.story.told)}")
        world.sink()
        write_checkpoint(world.lake.tables, "events")
    entries = list_table(world.lake.tables.at("events")).entries
    for file in (world.lake.root / "events" / "_delta_log").iterdir():
        age(file, 400 * DAY_S)
    world.lake.compact()
    vacuum(world.lake, 0, alone=True)
    assert set(list_table(world.lake.tables.at("events")).entries) >= set(entries)


def test_an_unreadable_entry_stops_it_before_anything_goes(world: World) -> None:
    orphan = world.lake.root / "turns" / "old.parquet"
    orphan.write_bytes(b"half")
    age(orphan, 30 * DAY_S)
    entry = max((world.lake.root / "turns" / "_delta_log").glob("*.json"))
    entry.write_bytes(b"{")
    with pytest.raises(LakeError):
        vacuum(world.lake)
    assert orphan.exists()


def test_checkpoints_and_compactions_change_no_row(world: World) -> None:
    """A checkpoint and three compactions once tripled a table of the library's users."""
    before = content(world.lake)
    for _ in range(3):
        write_checkpoint(world.lake.tables, "turns")
        world.lake.compact()
    assert content(world.lake) == before == content(open_lake(world.settings, world.artifacts))


def test_readers_and_the_sink_go_on_while_the_lake_is_maintained(world: World) -> None:
    done = threading.Event()
    failures: list[BaseException] = []
    counts: list[int] = []

    def read() -> None:
        reader = open_lake(world.settings, world.artifacts)
        try:
            while not done.is_set():
                events, turns, told = rows(reader, """select count(*), (select count(*) from turns),
                    count(*) filter (type = 'turn.generated' and admitted and reason = '') from events""")[0]
                assert turns == told
                counts.append(events)
                sum(batch.num_rows for batch in reader.batches("select * from events"))
        except BaseException as wrong:
            failures.append(wrong)

    def maintain() -> None:
        keeper = open_lake(world.settings, world.artifacts)
        try:
            while not done.is_set():
                keeper.compact(wait_s=60)
                vacuum(keeper, 3600, wait_s=60)
        except BaseException as wrong:
            failures.append(wrong)

    threads = [threading.Thread(target=work) for work in (read, read, maintain)]
    for thread in threads:
        thread.start()
    for number in range(12):
        world.story.episode(f"e{number}")
        world.sink()
    done.set()
    for thread in threads:
        thread.join()
    assert not failures
    assert counts and max(counts) <= len(world.story.told)
    assert rows(world.lake, "select count(*), count(distinct id) from events") == [(len(world.story.told),) * 2]
    assert world.lake.verify() == []


def test_a_compaction_that_fails_half_way_changes_no_row(world: World) -> None:
    before = content(world.lake)
    world.story.episode("later")
    world.sink()
    after = content(world.lake)
    victim = world.lake.root / "turns" / live_files(open_table(world.lake.tables, "turns"))[0].path
    data = victim.read_bytes()
    for damage in (lambda: victim.unlink(), lambda: victim.write_bytes(data[:-30])):
        damage()
        with pytest.raises(LakeError):
            open_lake(world.settings, world.artifacts).compact()
        victim.write_bytes(data)
        assert content(open_lake(world.settings, world.artifacts)) == after != before
    world.lake.compact()
    assert content(world.lake) == after and world.lake.verify() == []
