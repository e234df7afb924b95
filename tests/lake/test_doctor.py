"""The doctor finds every kind of damage to the files of a lake, says what to do, and what it says helps."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from lake import open_lake
from lake.content import content
from lake.doctor import examine
from lake.examination import Finding
from lake.files import live_files
from lake.tables import LAKE_VERSION, VERSION_KEY, open_table
from replay.rebuild import rebuild
from schemas.errors import LakeError
from schemas.topics import TOPICS
from tests.lake.worlds import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "home")
    world.fill()
    yield world
    world.close()


def found(world: World) -> list[Finding]:
    world.lake = open_lake(world.settings, world.artifacts)
    return examine(world.lake, world.log.identity, world.log.ends(TOPICS))


def live(world: World, table: str) -> Path:
    return world.lake.root / table / live_files(open_table(world.lake.tables, table))[0].path


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def scramble(path: Path) -> None:
    path.write_bytes(bytes(len(path.read_bytes())))


def remove(path: Path) -> None:
    path.unlink()


def entry(world: World, table: str, version: int = 1) -> Path:
    return world.lake.root / table / "_delta_log" / f"{version:020d}.json"


def checkpoint(world: World, table: str) -> Path:
    return next((world.lake.root / table / "_delta_log").glob("*.checkpoint.parquet"))


DAMAGES: list[tuple[str, Callable[[World], None], str]] = [
    ("turns", lambda world: remove(live(world, "turns")), "the file is missing, and 5 rows with it"),
    ("tool_calls", lambda world: truncate(live(world, "tool_calls")), "the file is truncated"),
    ("scores", lambda world: scramble(live(world, "scores")), "the file cannot be read"),
    ("episodes", lambda world: truncate(entry(world, "episodes")), "log cannot be read"),
    ("requests", lambda world: remove(entry(world, "requests")), "the entry of the table's log is missing"),
    ("tasks", lambda world: truncate(checkpoint(world, "tasks")), "the checkpoint cannot be read"),
    ("steps", lambda world: remove(checkpoint(world, "steps")), "which is not there"),
    ("weights", lambda world: truncate(checkpoint(world, "weights").parent / "_last_checkpoint"), "cannot be read"),
]


def test_damage_of_every_kind_is_found_and_a_rebuild_heals_it(world: World) -> None:
    before = content(world.lake)
    world.lake.compact()
    assert found(world) == []
    for _, plant, _ in DAMAGES:
        plant(world)
    damages = [finding for finding in found(world) if finding.severity == "damage"]
    for table, _, told in DAMAGES:
        assert any(told in finding.what and finding.where.startswith(table) and finding.action
                   for finding in damages), (table, damages)
    rebuild(world.lake, world.log, world.inspector, world.artifacts)
    assert content(world.lake) == before
    assert [finding for finding in found(world) if finding.severity == "damage"] == []


def test_a_missing_table_is_damage(world: World) -> None:
    shutil.rmtree(world.lake.root / "turns")
    assert any("lost rows that `events` says it holds" in finding.what and "turns" in finding.what
               and "rebuild" in finding.action for finding in found(world) if finding.severity == "damage")
    shutil.rmtree(world.lake.root / "events")
    assert [(finding.where, finding.what.partition(",")[0]) for finding in found(world)] == [
        ("events", "the table is gone")]


def test_notes_cost_disk_alone(world: World) -> None:
    orphan = world.lake.root / "turns" / "orphan.parquet"
    orphan.write_bytes(b"half")
    findings = found(world)
    assert [(finding.severity, finding.where) for finding in findings] == [("note", "turns/orphan.parquet")]
    assert "a writer may be at it" in findings[0].action
    world.story.episode("later")
    world.append()
    assert any("are not in the lake yet" in finding.what for finding in found(world))


def test_a_file_that_was_merged_away_is_no_orphan(world: World) -> None:
    world.story.episode("later")
    world.sink()
    world.lake.compact()
    assert found(world) == []


def test_a_table_of_another_log_is_damage(world: World) -> None:
    DeltaTable(str(world.lake.root / "scores")).alter.set_table_properties({"headrace.logIdentity": "other"},
                                                                           raise_if_not_exists=False)
    assert any("is a copy of log other" in finding.what for finding in found(world))
    assert any("this home's log is elsewhere" in finding.what
               for finding in examine(world.lake, "elsewhere", {}) if finding.severity == "damage")


def test_a_log_that_lost_its_end_is_damage(world: World) -> None:
    ends = {part: min(end, 1) for part, end in world.log.ends(TOPICS).items()}
    assert any("lost its end" in finding.what for finding in examine(world.lake, world.log.identity, ends))


def test_a_lake_of_a_newer_version_is_refused_before_anything_is_written(world: World) -> None:
    newer = str(LAKE_VERSION + 1)
    DeltaTable(str(world.lake.root / "events")).alter.set_table_properties({VERSION_KEY: newer},
                                                                           raise_if_not_exists=False)
    before = sorted(str(path) for path in world.lake.root.rglob("*"))
    world.lake = open_lake(world.settings, world.artifacts)
    world.story.episode("later")
    with pytest.raises(LakeError, match="newer version of Headrace"):
        world.sink()
    with pytest.raises(LakeError, match="newer version of Headrace"):
        rebuild(world.lake, world.log, world.inspector, world.artifacts)
    with pytest.raises(LakeError, match="newer version of Headrace"):
        world.lake.sql("select 1 from turns")
    after = sorted(str(path) for path in world.lake.root.rglob("*"))
    assert [path for path in after if path not in before and "maintenance" not in path] == []
    assert any("newer version" in finding.what for finding in found(world))


def test_a_lake_without_the_property_is_of_the_first_version(world: World) -> None:
    entry_path = entry(world, "events", 0)
    lines = [json.loads(line) for line in entry_path.read_text().splitlines()]
    for line in lines:
        line.get("metaData", {}).get("configuration", {}).pop(VERSION_KEY, None)
    entry_path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    world.lake = open_lake(world.settings, world.artifacts)
    world.story.episode("later")
    world.sink()
    assert world.lake.verify() == []


def test_a_log_that_was_trimmed_before_the_lake_had_it_is_damage(world: World) -> None:
    ends = world.log.ends(TOPICS)
    starts = {part: end + 3 if part == ("tasks", 0) else end for part, end in ends.items()}
    told = examine(world.lake, world.log.identity, ends | {("tasks", 0): 7}, log_starts=starts)
    assert [finding.where for finding in told if finding.severity == "damage"] == ["tasks-0"]
    assert "the lake is at 1, the log begins at 4: 3 offsets were trimmed" in told[0].what
    assert "--accept-loss" in told[0].action
