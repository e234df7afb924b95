"""Faults planted by hand in the files of a lake, each found by a command with exit code 1 that says what and where."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.cli import main
from lake import generation
from lake.files import live_files
from lake.tables import IDENTITY_KEY, open_table
from replay.rebuild import rebuild
from tests.lake.worlds import World

Change = Callable[[pa.Table], pa.Table]
Action = dict[str, Any]


class Home:
    """The files of a home that nobody has open."""

    def __init__(self, path: Path) -> None:
        self.path, self.lake = path, path / "lake"

    def entry(self, table: str, version: int = -1) -> Path:
        return sorted((self.lake / table / "_delta_log").glob("*.json"))[version]

    def edit(self, table: str, change: Callable[[Action], Action | None], version: int = -1) -> None:
        """Each action of an entry becomes another, or none."""
        entry = self.entry(table, version)
        actions = [change(json.loads(line)) for line in entry.read_text().splitlines()]
        entry.write_text("".join(json.dumps(action) + "\n" for action in actions if action))

    def file(self, table: str) -> Path:
        from artifacts.local_folder import LocalFolder

        return self.lake / table / live_files(open_table(LocalFolder(self.lake), table))[0].path

    def rewrite(self, table: str, change: Change) -> None:
        """The rows of a file change, and its entry says what it should: a fault that only rows can show."""
        path = self.file(table)
        rows = change(pq.read_table(path))
        pq.write_table(rows, path)

        def agree(action: Action) -> Action:
            if action.get("add", {}).get("path") == path.name:
                action["add"] |= {"size": path.stat().st_size, "stats": json.dumps({"numRecords": rows.num_rows})}
                del action["add"]["tags"]
            return action

        self.edit(table, agree)

    def timeline(self, data: bytes) -> None:
        (self.lake / "timeline.json").write_bytes(data)

    def swap(self, one: str, other: str) -> None:
        (self.lake / one).rename(self.lake / "between")
        (self.lake / other).rename(self.lake / one)
        (self.lake / "between").rename(self.lake / other)

    def copy_of_a_file(self, table: str) -> None:
        """A foreign writer commits a second file with rows that are there already."""
        path, entry = self.file(table), self.entry(table)
        shutil.copy(path, path.with_name("copy-of-" + path.name))
        add = next(json.loads(line) for line in entry.read_text().splitlines() if '"add"' in line)
        add["add"]["path"] = "copy-of-" + path.name
        entry.with_name(f"{int(entry.stem) + 1:020d}.json").write_text(json.dumps(add) + "\n")


def without(row: int) -> Change:
    return lambda rows: rows.take([index for index in range(rows.num_rows) if index != row])


def twice(rows: pa.Table) -> pa.Table:
    return pa.concat_tables([rows, rows.slice(0, 1)])


def with_value(column: str, value: object, row: int = 1) -> Change:
    def change(rows: pa.Table) -> pa.Table:
        values = rows.column(column).to_pylist()
        values[row] = value
        index = rows.column_names.index(column)
        return rows.set_column(index, rows.schema.field(index), pa.array(values, rows.schema.field(index).type))

    return change


def moved(by: int) -> Callable[[Action], Action]:
    """The position of a partition of trajectories, as an entry says it."""
    def change(action: Action) -> Action:
        name = action.get("txn", {}).get("appId", "")
        if name.count("/") == 2 and "/trajectories/" in name:
            action["txn"]["version"] += by
        return action

    return change


def replaced(table: str, key: str, value: object) -> Callable[[Home], None]:
    return lambda home: home.edit(table, lambda action: {key: value} if key in action else action, 0)


def named(table: str, key: str, value: str) -> Callable[[Home], None]:
    def change(action: Action) -> Action:
        action.get("metaData", {}).get("configuration", {}).update({key: value})
        return action

    return lambda home: home.edit(table, change, 0)


def put_back_the_pointer(home: Home) -> None:
    """The lake is built anew and goes on; then somebody restores an old copy of the file that names its tables."""
    world = World(home.path)
    rebuild(world.lake, world.log, world.inspector, world.artifacts)
    world.story.request("later")
    world.sink()
    world.close()
    (home.lake / generation.POINTER).write_text('{"tables":"","before":[]}')


def flip(path: Path, at: int) -> None:
    whole = bytearray(path.read_bytes())
    whole[at] ^= 1
    path.write_bytes(whole)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-30])


def artifact_of(column: str, table: str, change: Callable[[Path], None]) -> Callable[[Home], None]:
    """What the first row of a table names in the artifact store."""
    def plant(home: Home) -> None:
        digest = pq.read_table(home.file(table))[column][0].as_py().removeprefix("sha256:")
        change(home.path / "artifacts" / digest[:2] / digest)

    return plant


VERIFY, AGAINST_LOG, DOCTOR = ["verify"], ["verify", "--against-log"], ["doctor"]
FAULTS: dict[str, tuple[Callable[[Home], None], list[str], str]] = {
    "row dropped": (lambda home: home.rewrite("turns", without(1)), VERIFY, "turns: no row for the turn.generated"),
    "event dropped": (lambda home: home.rewrite("events", without(9)), VERIFY, "the log has records at 1 of them"),
    "row doubled": (lambda home: home.rewrite("turns", twice), VERIFY, "is there 2 times in turns"),
    "offsets overlapping in two files": (lambda home: home.copy_of_a_file("events"), VERIFY, "2 times in events"),
    "letters doubled": (lambda home: home.copy_of_a_file("dead_letters"), VERIFY, "there are 2 rows"),
    "value altered": (lambda home: home.rewrite("turns", with_value("text", "x")), VERIFY, "`text` is 'x'"),
    "time altered": (lambda home: home.rewrite("turns", with_value("started_at", 2**62)), VERIFY,
                     "`started_at` is"),
    "event altered": (lambda home: home.rewrite("events", with_value("source", "x", 30)), AGAINST_LOG, "`source` is"),
    "event nameless": (lambda home: home.rewrite("events", with_value("subject", None)), VERIFY, "lacks its id"),
    "letter altered": (lambda home: home.rewrite("dead_letters", with_value("data", b"x", 0)), VERIFY, "`data` is"),
    "wrong partition": (lambda home: home.rewrite("events", with_value("partition", 7)), VERIFY, "lies beyond offset"),
    "one bit flipped": (lambda home: flip(home.file("turns"), 200), DOCTOR, "the file is not as it was written"),
    "file truncated": (lambda home: cut(home.file("turns")), DOCTOR, "the file is truncated"),
    "evidence flipped": (artifact_of("evidence", "scores", lambda path: flip(path, 5)), VERIFY,
                         "its evidence cannot be had: artifact is corrupt"),
    "submission emptied": (artifact_of("submission", "episodes", lambda path: path.write_bytes(b"") and None), VERIFY,
                           "its submission cannot be had: artifact is corrupt"),
    "manifest deleted": (artifact_of("manifest", "batches", Path.unlink), VERIFY,
                         "batch-1: its manifest cannot be had: artifact is missing"),
    "file deleted": (lambda home: home.file("scores").unlink(), DOCTOR, "the file is missing, and 3 rows with it"),
    "entry removed": (lambda home: home.entry("turns", 0).unlink(), DOCTOR, "entry of the table's log is missing"),
    "entry garbled": (lambda home: home.entry("turns").write_text('{"add":'), DOCTOR, "log cannot be read"),
    "entry without its file": (lambda home: home.edit("turns", lambda action: None if "add" in action else action),
                               DOCTOR, "an entry or checkpoint was changed: file"),
    "position put forward": (lambda home: home.edit("turns", moved(+100)), DOCTOR, "transaction"),
    "position of events put forward": (lambda home: home.edit("events", moved(+5)), AGAINST_LOG, "it lost its end"),
    "position of events put back": (lambda home: home.edit("events", moved(-2)), VERIFY, "lies beyond offset"),
    "checkpoint garbled": (lambda home: cut(next(home.lake.glob("turns/_delta_log/*.checkpoint.parquet"))), DOCTOR,
                           "the checkpoint cannot be read"),
    "tables swapped": (lambda home: home.swap("events", "turns"), VERIFY, "another table of the lake lies here"),
    "like tables swapped": (lambda home: home.swap("batch_rows", "batch_dispositions"), DOCTOR, "lies here"),
    "table of another log": (named("turns", IDENTITY_KEY, "another"), VERIFY, "is a copy of log another"),
    "stale pointer": (put_back_the_pointer, DOCTOR, "names older tables than there are"),
    "timeline zeroed": (lambda home: home.timeline(bytes(40)), DOCTOR, "the timeline cannot be read"),
    "timeline ahead": (lambda home: home.timeline(b'{"until":9,"moments":[[5,{"tasks-0":99}]]}'), DOCTOR,
                       "commits that never were"),
    "newer Delta reader": (replaced("turns", "protocol", {"minReaderVersion": 9, "minWriterVersion": 9}), DOCTOR,
                           "more than this version of Headrace understands"),
    "newer Delta feature": (replaced("turns", "protocol", {
        "minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["rowTracking"]}), VERIFY, "rowTracking"),
}
CHECKPOINTED = {"entry without its file", "position put forward", "checkpoint garbled"}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[bool, Path]]:
    """A home whose lake was filled in one flush, without and with checkpoints."""
    homes = {}
    for checkpointed in (False, True):
        world = World(tmp_path_factory.mktemp("sound") / "home")
        world.fill(3)
        if checkpointed:
            world.lake.compact()
        world.close()
        homes[checkpointed] = Path(world.settings.home)
    yield homes


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(sound: dict[bool, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                  name: str) -> None:
    plant, command, words = FAULTS[name]
    home = shutil.copytree(sound[name in CHECKPOINTED], tmp_path / "home")
    plant(Home(home))
    assert main(["lake", *command, "--home", str(home), "-o", "jsonl"]) == 1
    shown = capsys.readouterr().out
    assert words in shown


@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_sound_lake_passes_all_audits(sound: dict[bool, Path], capsys: pytest.CaptureFixture[str],
                                        checkpointed: bool) -> None:
    for command in (VERIFY, AGAINST_LOG, DOCTOR):
        assert main(["lake", *command, "--home", str(sound[checkpointed]), "-o", "jsonl"]) == 0
        assert capsys.readouterr().out == ""


@pytest.mark.parametrize("name", ["newer Delta reader", "newer Delta feature", "tables swapped",
                                  "table of another log", "entry removed", "file truncated", "file deleted"])
def test_a_broken_lake_is_neither_maintained_nor_written(
        sound: dict[bool, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    """And nothing but the lease's own files is there afterwards that was not before."""
    home = shutil.copytree(sound[False], tmp_path / "home")
    world = World(home)
    world.story.request("later")
    world.append()
    world.close()
    FAULTS[name][0](Home(home))
    before = set(Home(home).lake.rglob("*"))
    commands = [["lake", "compact"], ["lake", "vacuum", "--alone", "--retention", "0s"], ["lake", "redrive"]]
    commands += [["sink", "--until-idle"], ["lake", "rebuild"]] if name.startswith("newer") else []
    for command in commands:
        assert main([*command, "--home", str(home)]) == 2, command
        assert capsys.readouterr().err.startswith("error[")
    left = set(Home(home).lake.rglob("*")) - before
    assert {path.name for path in left} <= {"maintenance.json", ".maintenance.json.lock"}
