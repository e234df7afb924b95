"""Dead letters become rows once their cause is gone: exactly once, marked, and equal to a lake that is built anew."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import apsw
import msgspec
import pytest

from artifacts.store import DirectoryStore
from eventlog.inspection import Hole, PartitionRow, Scanned
from eventlog.sqlite_inspection import SqliteInspector
from lake import open_lake
from lake.content import content
from lake.redrive import add_missing
from lake.tablelog import TableLog
from replay.audit import differences
from replay.rebuild import rebuild
from replay.redrive import Outcome, redrive, runs
from schemas import codec
from schemas.envelope import Event, Position
from schemas.errors import CommitConflictError
from schemas.failpoints import VARIABLE
from tests.lake.histories import rows
from tests.lake.worlds import World

OLD_TURN = msgspec.msgpack.encode({
    "number": 1, "context": b"", "generated": b"", "started_at": 1_700_000_000_000_000,
    "finished_at": 1_700_000_000_000_000})
"""A turn whose writer called a field otherwise: a violation until an upcaster knows it."""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "home")
    yield world
    world.close()


def sealed_without_manifest(world: World) -> tuple[Path, bytes]:
    world.story.request("a", "b")
    world.story.seal("batch-1", 0, {"a": "trained", "b": "stale"})
    ref = msgspec.msgpack.decode(world.story.told[-1][1].data)["manifest"]["digest"]
    assert isinstance(world.artifacts, DirectoryStore)
    path = world.artifacts.path(ref)
    manifest = path.read_bytes()
    path.unlink()
    world.sink()
    return path, manifest


def test_a_manifest_that_came_back(world: World) -> None:
    path, manifest = sealed_without_manifest(world)
    assert [one.result for one in redrive(world.lake, world.inspector, world.artifacts)] == ["stays"]
    assert rows(world.lake, "select redriven_at is null from dead_letters") == [(True,)]
    path.write_bytes(manifest)
    assert any("`headrace lake redrive`" in text for text in differences(world.lake, world.artifacts))
    assert [one.result for one in redrive(world.lake, world.inspector, world.artifacts, dry_run=True)] == ["redriven"]
    assert rows(world.lake, "select count(*) from batch_rows") == [(0,)]
    assert [one.result for one in redrive(world.lake, world.inspector, world.artifacts)] == ["redriven"]
    check_healed(world)
    assert rows(world.lake, "select episode_id from batch_rows") == [("a",)]
    assert rows(world.lake, "select episode_id, disposition from dispositions order by 1") == [
        ("a", "trained"), ("b", "stale")]


def check_healed(world: World, letters: int = 1) -> None:
    """Marked, exactly once, sound, and what a lake built anew holds."""
    assert rows(world.lake, "select count(*) from dead_letters where redriven_at is not null") == [(letters,)]
    assert redrive(world.lake, world.inspector, world.artifacts) == []
    assert world.lake.verify() == []
    assert list(differences(world.lake, world.artifacts, world.inspector)) == []
    assert rows(world.lake, 'select count(*) - count(distinct (topic, partition, "offset")) from events') == [(0,)]
    before, at = content(world.lake), world.lake.positions()
    assert all(report.same for report in rebuild(world.lake, world.log, world.inspector, world.artifacts))
    assert content(world.lake) == before and world.lake.positions() == at
    assert rows(world.lake, "select count(*) from dead_letters") == [(0,)]


def old_turn(world: World, data: bytes = OLD_TURN) -> None:
    story = world.story
    story.start("e")
    story.turn("e")
    sequence = story.sequences["e"] = story.sequences["e"] + 1
    story.told.append(("trajectories", Event("old", "writer-1", "headrace.turn.generated.v1", "e", sequence,
                                             story.time_us, data)))
    story.finish("e")


def lift(data: bytes) -> bytes:
    fields = msgspec.msgpack.decode(data)
    if "number" in fields:
        fields["turn"] = fields.pop("number")
    return msgspec.msgpack.encode(fields)


class Lifting:
    """A decoder of turns that knows the old name of the field: what a fixed release would ship."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[object]) -> None:
        self._decoder = decoder

    def decode(self, data: bytes) -> object:
        return self._decoder.decode(lift(data))


def test_an_event_that_a_fixed_release_can_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    old_turn(world)
    world.sink()
    assert rows(world.lake, "select turn from turns") == [(0,)]
    assert [one.result for one in redrive(world.lake, world.inspector, world.artifacts)] == ["stays"]
    fix(monkeypatch)
    assert [one.result for one in redrive(world.lake, world.inspector, world.artifacts)] == ["redriven"]
    assert rows(world.lake, "select turn from turns order by 1") == [(0,), (1,)]
    check_healed(world)


def fix(monkeypatch: pytest.MonkeyPatch) -> None:
    key = ("turn.generated", 1)
    monkeypatch.setitem(codec._DECODERS, key, Lifting(codec._DECODERS[key]))  # type: ignore[arg-type]


def test_what_would_change_other_rows_asks_for_a_rebuild(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The turn tells weight versions, which the row of the episode sums up: that row is there already."""
    data = msgspec.msgpack.encode({**msgspec.msgpack.decode(OLD_TURN), "generated": bytes(4), "versions": [(9, 1)]})
    old_turn(world, data)
    world.sink()
    fix(monkeypatch)
    outcome = redrive(world.lake, world.inspector, world.artifacts)[0]
    assert outcome.result == "needs a rebuild" and "version_max" in outcome.reason
    assert rows(world.lake, "select turn from turns") == [(0,)]
    rebuild(world.lake, world.log, world.inspector, world.artifacts)
    assert rows(world.lake, "select turn from turns order by 1") == [(0,), (1,)]
    assert redrive(world.lake, world.inspector, world.artifacts) == []


def test_killed_and_started_again(world: World) -> None:
    path, manifest = sealed_without_manifest(world)
    path.write_bytes(manifest)
    died = subprocess.run([sys.executable, "-c", _CHILD, world.settings.home], check=False, capture_output=True,
                          env={**os.environ, VARIABLE: "redrive:after_table:batch_rows"})
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()
    world.lake.folder.write("maintenance.json", b"{}")
    assert [one.result for one in redrive(world.lake, world.inspector, world.artifacts)] == ["redriven"]
    check_healed(world)


_CHILD = """
import sys
from pathlib import Path
from tests.lake.worlds import World
from replay.redrive import redrive
world = World(Path(sys.argv[1]))
redrive(world.lake, world.inspector, world.artifacts)
"""


def test_of_two_at_once_one_adds_the_rows(world: World) -> None:
    """The lease keeps them apart; where it fails, the table's counter does."""
    path, manifest = sealed_without_manifest(world)
    path.write_bytes(manifest)
    other = open_lake(world.settings, world.artifacts)
    assert [one.result for one in redrive(world.lake, world.inspector, world.artifacts)] == ["redriven"]
    made = world.lake.sql("select * from raw_batch_rows")
    assert add_missing(other, "batch_rows", made) == 0
    stale = TableLog(world.lake.tables, "batch_rows")
    TableLog(world.lake.tables, "batch_rows").commit([], {"headrace/redrive": 2})
    with pytest.raises(CommitConflictError):
        stale.commit([], {"headrace/redrive": 2})


def test_what_has_no_cure_stays_as_it_is(world: World) -> None:
    world.fill()
    before = content(world.lake)
    outcomes = redrive(world.lake, world.inspector, world.artifacts)
    assert [one.result for one in outcomes] == ["stays", "stays"]
    assert all(isinstance(one, Outcome) and one.reason for one in outcomes)
    assert content(world.lake) == before


class Counting:
    """The log, and how often reading it began."""

    def __init__(self, log: SqliteInspector) -> None:
        self._log, self.scans = log, 0
        self.exactly_once, self.about, self.topics, self.groups = log.exactly_once, log.about, log.topics, log.groups
        self.partitions, self.faults, self.close = log.partitions, log.faults, log.close

    def scan(self, row: PartitionRow) -> Iterator[Scanned | Hole]:
        self.scans += 1
        return self._log.scan(row)


def test_the_log_is_not_read_anew_for_each_letter(world: World) -> None:
    """To begin to read takes a broker 50 ms."""
    world.story.request(*(f"episode-{number}" for number in range(30)))
    world.append()
    connection = apsw.Connection(f"{world.settings.home}/log.db")
    connection.execute("update events set source = cast(x'ff' as text)")
    connection.close()
    world.sink()
    assert isinstance(world.inspector, SqliteInspector)
    log = Counting(world.inspector)
    outcomes = redrive(world.lake, log, world.artifacts)
    partitions = {one.position.partition for one in outcomes}
    assert len(outcomes) == 30 and {one.result for one in outcomes} == {"stays"}
    assert log.scans == len(partitions) < 10


def test_letters_far_apart_are_not_read_as_one_run() -> None:
    positions = [Position("scores", 0, offset) for offset in (1, 2, 100_000, 100_001)] + [Position("scores", 1, 5)]
    assert [len(run) for run in runs(positions)] == [2, 2, 1]
