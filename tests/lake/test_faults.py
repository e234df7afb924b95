"""Faults planted by hand that made a lake look well, empty, or ask for the wrong cure."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from artifacts.folder import Folder
from headrace.cli import main
from lake import generation, open_lake
from lake.content import content
from lake.doctor import examine
from lake.files import live_files
from lake.tables import IDENTITY_KEY, VERSION_KEY, open_table
from replay.rebuild import discard_old, rebuild, undo
from schemas.errors import LakeError, NotFoundError
from tests.lake.worlds import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "home")
    world.fill(3)
    yield world
    world.close()


def reopen(world: World) -> None:
    world.lake = open_lake(world.settings, world.artifacts)


def set_property(world: World, table: str, key: str, value: str) -> None:
    DeltaTable(str(world.lake.root / table)).alter.set_table_properties({key: value}, raise_if_not_exists=False)
    reopen(world)


def built_anew(world: World) -> Folder:
    rebuild(world.lake, world.log, world.inspector, world.artifacts)
    discard_old(world.lake)
    return world.lake.folder


@pytest.mark.parametrize(("pointer", "words"), [
    (None, "names the lake's tables is gone"), (b'{"tables":"tables-elsewhere"}', "tables that are the lake are gone")])
def test_a_lake_whose_pointer_is_lost_is_not_an_empty_one(world: World, pointer: bytes | None, words: str) -> None:
    before = content(world.lake)
    folder = built_anew(world)
    kept = folder.read(generation.POINTER)
    folder.remove(generation.POINTER)
    if pointer is not None:
        folder.write(generation.POINTER, pointer)
    reopen(world)
    assert any(words in problem and "rebuild" in problem for problem in world.lake.verify())
    assert any(words in finding.what for finding in examine(world.lake) if finding.severity == "damage")
    with pytest.raises(LakeError, match=words):
        world.lake.sql("select count(*) from scores")
    with pytest.raises(LakeError, match=words):
        world.sink()
    if pointer is None:
        rebuild(world.lake, world.log, world.inspector, world.artifacts)
    else:
        folder.write(generation.POINTER, kept)
    reopen(world)
    assert world.lake.verify() == [] and content(world.lake) == before


def test_a_pointer_out_of_the_lake_is_refused(world: World) -> None:
    world.lake.folder.write(generation.POINTER, b'{"tables":"../elsewhere"}')
    reopen(world)
    with pytest.raises(LakeError, match="is no name of tables"):
        world.sink()
    assert not (world.lake.root.parent / "elsewhere").exists()


def test_an_undo_to_tables_that_are_gone_is_refused(world: World) -> None:
    rebuild(world.lake, world.log, world.inspector, world.artifacts)
    before = content(world.lake)
    shutil.rmtree(world.lake.root / "events")
    with pytest.raises(NotFoundError, match="of before is gone"):
        undo(world.lake)
    assert content(world.lake) == before


def test_a_newer_table_is_not_replaced_by_a_rebuild(world: World) -> None:
    set_property(world, "turns", VERSION_KEY, "99")
    with pytest.raises(LakeError, match="newer version"):
        rebuild(world.lake, world.log, world.inspector, world.artifacts)
    assert world.lake.tables.url == str(world.lake.root)


def test_events_that_name_another_log_are_not_called_gone(world: World) -> None:
    set_property(world, "events", IDENTITY_KEY, "elsewhere")
    problems = world.lake.verify()
    assert len(problems) == 1 and "a copy of log elsewhere" in problems[0] and world.log.identity in problems[0]


def test_a_lake_of_another_log_does_not_agree_with_this_one(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    other = World(Path(world.settings.home).parent / "other")
    other.fill(3)
    other.close()
    shutil.rmtree(world.lake.root)
    shutil.copytree(other.lake.root, world.lake.root)
    assert main(["lake", "verify", "--against-log", "--home", world.settings.home]) == 1
    assert f"is a copy of log {other.log.identity}" in capsys.readouterr().out


def test_a_damaged_file_is_no_mistake_in_the_query(world: World) -> None:
    file = world.lake.root / "turns" / live_files(open_table(world.lake.tables, "turns"))[0].path
    whole = file.read_bytes()
    middle = len(whole) // 2
    for bad in (bytes(len(whole)), whole[:middle], whole[:4] + b"\xff" * (middle - 4) + whole[middle:]):
        file.write_bytes(bad)
        reopen(world)
        with pytest.raises(LakeError) as caught:
            world.lake.sql("select * from turns")
        assert "headrace lake doctor" in caught.value.hint
        assert any(problem.startswith(f"turns/{file.name}: the file cannot be read") for problem in world.lake.verify())


def test_a_log_without_a_lake_is_not_called_empty(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(world.lake.root)
    assert main(["lake", "rebuild", "--home", world.settings.home]) == 2
    shown = capsys.readouterr().err
    assert "there is a log here, but no lake" in shown and "headrace sink --until-idle" in shown
