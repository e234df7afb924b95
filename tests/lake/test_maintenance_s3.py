"""Maintenance of a lake in a bucket: the same promises, over conditional puts instead of files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from artifacts.folder import open_folder
from lake import open_lake
from lake.asof import snapshot_named
from lake.content import content
from lake.doctor import examine
from lake.files import live_files
from lake.lease import FILE, Held, maintenance
from lake.tables import open_table
from lake.vacuum import vacuum
from replay.audit import differences
from replay.rebuild import discard_old, rebuild, undo
from replay.redrive import redrive
from schemas.errors import LakeError
from schemas.ids import now_us
from schemas.topics import TOPICS
from tests.lake.worlds import World


@pytest.fixture
def world(tmp_path: Path, bucket: str) -> Iterator[World]:
    world = World(tmp_path / "home", lake=f"{bucket}/a läke", artifacts=f"{bucket}/artifacts")
    world.fill()
    yield world
    world.close()


def test_all_of_it_in_a_bucket(world: World) -> None:
    before, lake = content(world.lake), world.lake
    then = world.lake.snapshot()
    lake.compact()
    assert examine(lake, world.log.identity, world.log.ends(TOPICS)) == []
    assert all(report.same for report in rebuild(lake, world.log, world.inspector, world.artifacts))
    assert content(lake) == before
    assert snapshot_named(lake, "2999-01-01") == then
    world.story.episode("later")
    world.sink()
    assert list(differences(lake, world.artifacts, world.inspector)) == [] == lake.verify()
    assert [one.result for one in redrive(lake, world.inspector, world.artifacts)] == ["stays", "stays"]
    undo(lake)
    assert content(open_lake(world.settings, world.artifacts)) == before
    assert discard_old(lake)
    victim = live_files(open_table(lake.tables, "turns"))[0].path
    lake.tables.at("turns").remove(victim)
    assert next((finding.where, finding.severity) for finding in examine(lake)) == (f"turns/{victim}", "damage")


def test_two_at_once_and_a_vacuum(world: World) -> None:
    folder = open_folder(world.settings.lake)
    folder.write(FILE, msgspec.json.encode(Held("other/1/x", "compact", now_us() + 20_000_000)))
    with pytest.raises(LakeError, match="another process maintains"):
        vacuum(world.lake)
    folder.write(FILE, msgspec.json.encode(Held("other/1/x", "compact", now_us() - 1)))
    with maintenance(folder, "compact") as lease, pytest.raises(LakeError, match="compact by process"):
        lease.check()
        world.lake.compact()
    world.lake.tables.at("turns").write("orphan.parquet", b"half")
    assert vacuum(world.lake) == []
    assert {file.file for file in vacuum(world.lake, 0, alone=True)} == {"orphan.parquet"}
    assert world.lake.verify() == []
