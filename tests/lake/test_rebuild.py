"""A lake built anew from the log has the same rows, whatever happened to the old one, and to the process."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import apsw
import pyarrow as pa
import pytest

from consumers.folding import Folding
from consumers.sink import Sink
from lake import generation, open_lake
from lake.content import content
from lake.vacuum import vacuum
from replay.audit import differences
from replay.rebuild import FILE, discard_old, rebuild, undo
from replay.source import LogSource, Loss
from schemas.errors import CommitConflictError, LakeError, LogDamagedError, LogError
from schemas.failpoints import VARIABLE
from schemas.topics import TOPICS
from tests.lake.histories import flush_of, rows
from tests.lake.worlds import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "home with späces")
    yield world
    world.close()


def run(world: World, check: bool = False) -> bool:
    """Whether all tables were the same before and after."""
    return all(report.same for report in rebuild(world.lake, world.log, world.inspector, world.artifacts, check=check))


def test_the_same_rows_after_all_maintenance(world: World) -> None:
    world.fill()
    before, positions = content(world.lake), world.lake.positions()
    world.lake.compact()
    vacuum(world.lake, 0, alone=True)
    assert content(world.lake) == before
    old = world.lake.tables.url
    assert run(world)
    assert content(world.lake) == before and world.lake.positions() == positions
    assert world.lake.tables.url != old and world.lake.verify() == []
    assert content(open_lake(world.settings, world.artifacts)) == before
    assert before["turns"].rows and before["batch_rows"].rows and before["dead_letters"].rows


def test_a_check_changes_nothing(world: World) -> None:
    world.fill()
    old = world.lake.tables.url
    assert run(world, check=True)
    assert world.lake.tables.url == old
    assert sorted(path.name for path in world.lake.root.iterdir() if path.name.startswith("tables-")) == []


def test_a_sink_goes_on_after_a_rebuild(world: World) -> None:
    world.fill(3)
    assert run(world)
    world.story.request("later")
    world.story.episode("later")
    world.sink()
    assert rows(world.lake, "select count(*) from events") == [(len(world.story.told),)]
    assert rows(world.lake, "select count(*) from turns where episode_id = 'later'") == [(1,)]
    assert world.lake.verify() == []


def test_a_sink_that_runs_meanwhile_loses_nothing(world: World) -> None:
    world.fill(3)
    stop = threading.Event()
    other = open_lake(world.settings, world.artifacts)
    sink = Sink(world.log, other, world.artifacts, world.settings, member="other")
    thread = threading.Thread(target=sink.run, args=(stop,))
    thread.start()
    for number in range(3):
        world.story.episode(f"while-{number}")
        world.append()
        rebuild(world.lake, world.log, world.inspector, world.artifacts)
    world.story.episode("after")
    world.append()
    ends = {part: end for part, end in world.log.ends(TOPICS).items() if end}
    deadline = time.monotonic() + 60
    while world.lake.positions() != ends and time.monotonic() < deadline:
        pass
    stop.set()
    thread.join()
    assert rows(world.lake, "select count(*), count(distinct id) from events") == [(len(world.story.told),) * 2]
    assert world.lake.verify() == []


def test_a_missing_table_comes_back(world: World) -> None:
    world.fill()
    before = content(world.lake)
    shutil.rmtree(world.lake.root / "turns")
    lake = open_lake(world.settings, world.artifacts)
    assert any("lost rows" in problem and "turns" in problem for problem in lake.verify())
    world.lake = lake
    assert not run(world)
    assert content(world.lake) == before


def test_a_lake_without_its_events_is_refused_and_comes_back(world: World) -> None:
    world.fill()
    before = content(world.lake)
    shutil.rmtree(world.lake.root / "events")
    world.lake = open_lake(world.settings, world.artifacts)
    assert any("`events` is gone" in problem for problem in world.lake.verify())
    with pytest.raises(LakeError, match="`events` is gone"):
        world.sink()
    assert not run(world)
    assert content(world.lake) == before
    world.sink()


def test_it_can_be_undone_and_the_old_one_discarded(world: World) -> None:
    world.fill(3)
    old = world.lake.tables.url
    assert run(world)
    new = world.lake.tables.url
    assert undo(world.lake) == old == world.lake.tables.url
    world.story.episode("after the undo")
    world.sink()
    assert run(world)
    before = content(world.lake)
    assert discard_old(world.lake, dry_run=True) and Path(old, "events").exists()
    removed = discard_old(world.lake)
    assert {file.table for file in removed} >= {"events", "turns"}
    assert not Path(old, "events").exists() and not Path(new).exists()
    assert content(world.lake) == before
    assert discard_old(world.lake) == []


def test_a_vacuum_discards_old_tables_by_age(world: World) -> None:
    world.fill(3)
    assert run(world)
    assert vacuum(world.lake) == []
    assert vacuum(world.lake, 0, alone=True)
    assert generation.read(world.lake.folder)[0].before == []
    assert world.lake.verify() == []


@pytest.mark.parametrize("failpoint", ["rebuild:after_commit@3", "rebuild:before_switch", "rebuild:after_switch"])
def test_killed_and_started_again(world: World, failpoint: str) -> None:
    world.fill()
    before = content(world.lake)
    begun = subprocess.run([sys.executable, "-c", _CHILD, world.settings.home], check=False, capture_output=True,
                           env={**os.environ, VARIABLE: failpoint})
    assert begun.returncode == -signal.SIGKILL, begun.stderr.decode()
    assert content(open_lake(world.settings, world.artifacts)) == before
    name = world.lake.folder.read(FILE)
    world.lake.folder.write("maintenance.json", b"{}")  # The dead process' lease is over.
    tables = [path for path in world.lake.root.iterdir() if path.name.startswith("tables-")]
    assert run(world)
    assert content(world.lake) == before and world.lake.verify() == []
    if failpoint != "rebuild:after_switch":
        assert [Path(world.lake.tables.url)] == tables and world.lake.tables.url.rpartition("/")[2].encode() in name
    assert world.lake.folder.size(FILE) is None


_CHILD = """
import sys
from pathlib import Path
from tests.lake.worlds import World
from replay.rebuild import rebuild
world = World(Path(sys.argv[1]))
rebuild(world.lake, world.log, world.inspector, world.artifacts)
"""


def trim(world: World, below: int) -> None:
    connection = apsw.Connection(f"{world.settings.home}/log.db")
    connection.execute("""delete from events where offset < ? and exists (select 1 from heads h
        where h.topic = events.topic and h.partition = events.partition and h.next_offset > ?)""", (below, below))
    connection.close()


def test_what_was_trimmed_from_the_log_comes_from_the_archive(world: World) -> None:
    world.fill()
    before = content(world.lake)
    trim(world, 2)
    assert run(world)
    assert content(world.lake) == before


def test_what_neither_has_is_refused(world: World) -> None:
    world.fill()
    trim(world, 2)
    shutil.rmtree(world.lake.root / "events")
    lake = open_lake(world.settings, world.artifacts)
    with pytest.raises(LogError, match=r"neither the log nor the lake's archive has what was written .*rows are gone"):
        rebuild(lake, world.log, world.inspector, world.artifacts)
    assert lake.tables.url == str(world.lake.root)


def test_a_log_that_lost_its_end_is_refused(world: World) -> None:
    world.fill()
    connection = apsw.Connection(f"{world.settings.home}/log.db")
    connection.execute("update heads set next_offset = 1 where next_offset > 1")
    connection.close()
    with pytest.raises(LakeError, match="lost its end"):
        rebuild(world.lake, world.log, world.inspector, world.artifacts)


def refuse(loss: Loss) -> None:
    raise AssertionError(loss)


def flush(world: World) -> tuple[dict[str, pa.Table], dict[tuple[str, int], int], dict[tuple[str, int], int]]:
    """The next flush of a sink, of one new event."""
    start = world.lake.positions()
    world.story.request(f"next-{len(world.story.told)}")
    world.append()
    ends = world.log.ends(TOPICS)
    source = LogSource(world.inspector, None, refuse)
    return flush_of(Folding(world.artifacts), [
        record for part, end in ends.items() for record in source.read(part, start.get(part, 0), end)])


def test_a_writer_of_the_old_tables_starts_over(world: World) -> None:
    world.fill()
    other = open_lake(world.settings, world.artifacts)
    other.bind(world.log.identity)
    other.commit(*flush(world))
    rebuild(world.lake, world.log, world.inspector, world.artifacts)
    following = flush(world)
    with pytest.raises(CommitConflictError, match="built anew"):
        other.commit(*following)
    assert other.positions() == world.lake.positions()
    other.commit(*following)
    assert rows(world.lake, "select count(*) from events") == [(len(world.story.told),)]


def test_a_commit_to_the_old_tables_that_ends_after_the_switch_does_not_count(
        world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its writer starts over: otherwise a sink that stops now would believe that its last rows are in the lake."""
    world.fill()
    other = open_lake(world.settings, world.artifacts)
    other.bind(world.log.identity)
    following = flush(world)
    begun: list[str] = []

    def meanwhile(name: str) -> None:
        if not begun:  # The rebuild's own commits pass here too.
            begun.append(name)
            rebuild(world.lake, world.log, world.inspector, world.artifacts)

    monkeypatch.setattr("lake.commit.hit", meanwhile)
    with pytest.raises(CommitConflictError, match="built anew"):
        other.commit(*following)


def test_what_came_to_the_old_tables_before_the_switch_is_in_the_new_ones(
        world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.fill()

    def meanwhile(name: str) -> None:
        if name == "rebuild:before_switch":
            world.story.episode("meanwhile")
            world.append()
            Sink(world.log, open_lake(world.settings, world.artifacts), world.artifacts, world.settings).run(
                threading.Event(), until_idle=True)

    monkeypatch.setattr("replay.rebuild.hit", meanwhile)
    rebuild(world.lake, world.log, world.inspector, world.artifacts)
    assert rows(world.lake, "select count(*) from turns where episode_id = 'meanwhile'") == [(1,)]
    assert world.lake.positions() == {part: end for part, end in world.log.ends(TOPICS).items() if end}


def changed(world: World, statement: str) -> None:
    connection = apsw.Connection(f"{world.settings.home}/log.db")
    connection.execute(statement)
    assert connection.changes()
    connection.close()


def damaged(world: World) -> World:
    """A row of the log that is not what was written, as a bad disk leaves it; the lake is gone."""
    world.fill()
    changed(world, "update events set data = zeroblob(length(data)) where type = 'headrace.turn.generated.v1' "
                   "and subject = 'episode-1'")
    return world


def test_a_lake_is_not_built_from_a_damaged_log(world: World) -> None:
    damaged(world)
    shutil.rmtree(world.lake.root / "events")
    lake = open_lake(world.settings, world.artifacts)
    with pytest.raises(LogDamagedError, match="checksum differs") as caught:
        rebuild(lake, world.log, world.inspector, world.artifacts)
    assert "headrace log verify" in caught.value.hint and "--accept-loss" in caught.value.hint
    assert lake.tables.url == str(world.lake.root)
    rebuild(lake, world.log, world.inspector, world.artifacts, accept_loss=True)
    assert rows(lake, "select count(*) from dead_letters where reason like 'checksum differs%'") == [(1,)]
    assert rows(lake, "select count(*) from turns where episode_id = 'episode-1'") == [(0,)]
    assert any("checksum differs" in text for text in differences(lake, world.artifacts, world.inspector))


@pytest.mark.parametrize("change", ["data = zeroblob(length(data))", "sequence = 'x'", "id = cast(x'ff' as text)"])
def test_what_was_damaged_in_the_log_comes_from_the_archive(world: World, change: str) -> None:
    world.fill()
    before = content(world.lake)
    changed(world, f"update events set {change} where subject = 'episode-1' and type = 'headrace.turn.generated.v1'")
    rebuild(world.lake, world.log, world.inspector, world.artifacts)
    assert content(world.lake) == before


def test_a_log_whose_file_is_damaged_is_refused(world: World) -> None:
    world.fill()
    connection = apsw.Connection(f"{world.settings.home}/log.db")
    connection.execute("drop index events_by_id")
    connection.close()
    with pytest.raises(LogDamagedError, match="index events_by_id is gone"):
        rebuild(world.lake, world.log, world.inspector, world.artifacts)
    assert world.lake.tables.url == str(world.lake.root)
