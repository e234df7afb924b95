"""Every way to name a snapshot, and what is said of one that there is not."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from consumers.sink import Sink
from lake import open_lake
from lake.asof import snapshot_named
from lake.timeline import moments_of
from replay.rebuild import rebuild
from schemas.errors import HeadraceError, NotFoundError, QueryError, UserError
from schemas.topics import partition_for
from tests.lake.histories import rows
from tests.lake.worlds import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "home")
    yield world
    world.close()


def grown(world: World) -> list[tuple[int, int, dict[str, int]]]:
    """Time of each commit in milliseconds, events that were there then, and the snapshot."""
    found = []
    for number in range(4):
        world.story.request(f"e{number}")
        world.story.episode(f"e{number}")
        world.sink()
        found.append((moments_of(world.lake.tables)[-1].at, len(world.story.told), world.lake.snapshot()))
    return found


def iso(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat()


def count(world: World, named: str) -> int:
    found = world.lake.sql("select count(*) as n from events", snapshot_named(world.lake, named))
    return int(found.to_pylist()[0]["n"])


def test_a_snapshot_as_it_may_be_written(world: World, tmp_path: Path) -> None:
    _, events, snapshot = grown(world)[1]
    file = tmp_path / "snäp shot.json"
    file.write_text(json.dumps(snapshot))
    manifest = tmp_path / "manifest"
    manifest.write_text(json.dumps({"batch_id": "b", "snapshot": snapshot}))
    vector = tmp_path / "vector"
    vector.write_text(",".join(f"{part}:{offset}" for part, offset in snapshot.items()) + "\n")
    for named in (json.dumps(snapshot), vector.read_text(), str(file), str(manifest), str(vector)):
        assert snapshot_named(world.lake, named) == snapshot
        assert count(world, named) == events


def test_a_time_is_the_newest_commit_before_it_also_after_a_rebuild(world: World) -> None:
    moments = grown(world)
    world.lake.compact()
    for _ in range(2):
        for at, events, snapshot in moments:
            assert snapshot_named(world.lake, iso(at)) == snapshot
            assert count(world, iso(at)) == events
        assert count(world, iso(moments[1][0] - 1)) == moments[0][1]
        assert count(world, "2999-01-01") == len(world.story.told)
        with pytest.raises(NotFoundError, match="held nothing at that time") as wrong:
            count(world, iso(moments[0][0] - 1))
        assert datetime.fromtimestamp(moments[0][0] / 1000, UTC).isoformat(timespec="milliseconds")[:-6] in \
            wrong.value.hint
        rebuild(world.lake, world.log, world.inspector, world.artifacts)
    world.story.episode("after")
    world.sink()
    assert count(world, "2999-01-01") == len(world.story.told)
    assert count(world, iso(moments[2][0])) == moments[2][1]


def test_a_batch_names_the_snapshot_it_was_sealed_from(world: World) -> None:
    names = [name for name in map("e{}".format, range(40)) if partition_for(name, 4) == 0][:4]
    for name in names:
        world.story.request(name)
        world.story.episode(name)
    world.story.seal("batch-1", 0, {names[0]: "trained"})  # Its manifest says scores-0: 3.
    world.sink()
    snapshot = snapshot_named(world.lake, "batch:batch", lambda prefix: prefix + "-1")
    assert snapshot == {"scores-0": 3}
    assert world.lake.sql("select count(*) as n from scores", snapshot).to_pylist() == [{"n": 3}]
    with pytest.raises(NotFoundError, match="no such batch"):
        snapshot_named(world.lake, "batch:other")


NONE: list[tuple[str, type[HeadraceError], str]] = [
    ("yesterday", UserError, "no snapshot, time or batch"), ("", UserError, "no snapshot, time or batch"),
    ("2026-13-01", UserError, "not a time"), ("{", UserError, "not JSON"), ('{"a": "b"}', UserError, "maps"),
    ('{"trajectories-0": true}', UserError, "maps"), ('{"trajectories": 3}', UserError, "wrong entry"),
    ("trajectories-0:999999", QueryError, "beyond what the lake holds"),
    ('{"other-0": 5}', QueryError, "beyond what the lake holds")]


def test_what_is_none_is_told(world: World) -> None:
    with pytest.raises(NotFoundError, match="held nothing"):
        snapshot_named(world.lake, "2999-01-01")
    grown(world)
    for named, error, told in NONE:
        with pytest.raises(error, match=told):
            snapshot_named(world.lake, named)


def test_one_query_is_one_snapshot_while_the_sink_writes(world: World) -> None:
    world.fill()
    named = json.dumps(world.lake.snapshot())
    query = """select (select count(*) from events), (select count(*) from turns), (select count(*) from scores),
        (select count(*) from dispositions)"""
    before = rows(world.lake, query)
    stop = threading.Event()
    sink = Sink(world.log, open_lake(world.settings, world.artifacts), world.artifacts, world.settings)
    thread = threading.Thread(target=sink.run, args=(stop,))
    thread.start()
    try:
        for number in range(10):
            world.story.request(f"later-{number}")
            world.story.episode(f"later-{number}")
            world.append()
            found = world.lake.sql(query, snapshot_named(world.lake, named)).to_pylist()
            assert [tuple(row.values()) for row in found] == before
    finally:
        stop.set()
        thread.join()
