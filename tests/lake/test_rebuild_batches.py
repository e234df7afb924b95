"""Sealed batches are built again from a lake that was maintained and built anew: a snapshot is an offset vector."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from eventlog.inspection import inspect_log
from headrace.cli import main
from lake import open_lake
from lake.asof import snapshot_named
from lake.content import content
from lake.vacuum import vacuum
from replay.batch import rebuild_batches
from replay.rebuild import rebuild
from tests.training.world import RUN, World, member
from training.batch import seal
from training.spec import BatchSpec

SPEC = BatchSpec(groups=1, group_size=3, sequence_length=16, minibatches=1)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "home")
    yield world
    world.close()


def test_batches_are_identical_from_a_lake_built_anew(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    for step, name in enumerate("ab"):
        world.group(name, [1.0, 0.0, 0.5], version=step)
        world.sink()
        assert seal(RUN, SPEC, lake=world.lake, artifacts=world.artifacts, log=world.log) is not None
        world.sink()
    world.score(member("a", 0), 0.125, cause="replay")
    world.sink()
    before = content(world.lake)
    world.lake.compact()
    vacuum(world.lake, 0, alone=True)
    with closing(inspect_log(world.settings)) as inspector:
        assert all(report.same for report in rebuild(world.lake, world.log, inspector, world.artifacts))
    lake = open_lake(world.settings, world.artifacts)
    assert content(lake) == before
    reports = list(rebuild_batches(lake, world.artifacts))
    assert [(report.result, report.detail) for report in reports] == [("identical", "")] * 2
    for report in reports:
        count = "select count(*) as n from batches"
        assert lake.sql(count, snapshot_named(lake, f"batch:{report.batch_id}")).to_pylist() == [{"n": report.step}]
    assert main(["batches", "rebuild", "--all", "--check", "-o", "json", "--home", world.settings.home]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 2
    query = "select count(*) as n from batches"
    assert main(["sql", query, "--as-of", f"batch:{reports[1].batch_id}", "-o", "json", "--home",
                 world.settings.home]) == 0
    assert json.loads(capsys.readouterr().out) == [{"n": 1}]
