"""`headrace lake` as a user meets it: what it prints, its exit codes, and that two at once are told apart."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace.cli import main
from lake import lease
from lake.files import live_files
from lake.tables import open_table
from schemas.ids import now_us
from tests.lake.worlds import World


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    world = World(tmp_path_factory.mktemp("filled") / "home")
    world.fill()
    world.story.episode("later")
    world.sink()
    world.close()
    return Path(world.settings.home)


@pytest.fixture
def home(filled: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(filled, tmp_path / "a höme"))


def lake(capsys: pytest.CaptureFixture[str], home: Path, *arguments: str) -> tuple[int, str]:
    code = main(["lake", *arguments, "--home", str(home)])
    shown = capsys.readouterr()
    return code, shown.out + shown.err


def documents(capsys: pytest.CaptureFixture[str], home: Path, *arguments: str) -> tuple[int, Any]:
    code = main(["lake", *arguments, "-o", "json", "--home", str(home)])
    return code, json.loads(capsys.readouterr().out)


def test_a_sound_lake(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, against in ((["verify"], "the archive"), (["verify", "--quick"], "their promises"),
                               (["verify", "--against-log"], "the log")):
        code, shown = lake(capsys, home, *arguments)
        assert code == 0 and shown == f"sound: 49 offsets agree with {against}\n"
    assert lake(capsys, home, "doctor") == (0, "the lake is well\n")
    assert documents(capsys, home, "verify") == (0, [])


def test_maintenance_from_end_to_end(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, merged = documents(capsys, home, "compact")
    assert code == 0 and {"table": "events", "files_merged": 2} in merged
    assert documents(capsys, home, "vacuum", "--dry-run") == (0, [])
    code, told = documents(capsys, home, "vacuum", "--retention", "0", "--alone", "--dry-run")
    assert code == 0 and {file["table"] for file in told} >= {"events", "turns"}
    assert documents(capsys, home, "vacuum", "--retention", "0", "--alone") == (0, told)
    code, tables = documents(capsys, home, "rebuild", "--check")
    assert code == 0 and all(table["same"] for table in tables)
    code, shown = lake(capsys, home, "rebuild")
    assert code == 0 and "14 of 14 tables are the same; the lake of before is kept" in shown
    code, notes = documents(capsys, home, "doctor")
    assert code == 0 and [note["severity"] for note in notes] == ["note"]
    code, shown = lake(capsys, home, "rebuild", "--discard-old", "--dry-run")
    assert code == 0 and "would be removed" in shown
    assert lake(capsys, home, "rebuild", "--undo")[0] == 0
    assert lake(capsys, home, "rebuild", "--discard-old")[0] == 0
    assert lake(capsys, home, "verify")[0] == 0
    assert lake(capsys, home, "doctor") == (0, "the lake is well\n")
    code, letters = documents(capsys, home, "redrive")
    assert code == 0 and {letter["result"] for letter in letters} == {"stays"}


def test_damage_exits_with_1(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from artifacts.local_folder import LocalFolder

    tables = LocalFolder(home / "lake")
    victim = home / "lake" / "turns" / live_files(open_table(tables, "turns"))[0].path
    victim.unlink()
    code, findings = documents(capsys, home, "doctor")
    assert code == 1 and findings[0]["where"] == f"turns/{victim.name}" and "rebuild" in findings[0]["action"]
    code, shown = lake(capsys, home, "verify")
    assert code == 1 and "cannot be read" in shown and "Traceback" not in shown
    assert lake(capsys, home, "rebuild", "--check")[0] == 1
    assert lake(capsys, home, "rebuild")[0] == 0
    assert lake(capsys, home, "verify")[0] == 0


def test_a_second_maintenance_is_told_who_is_first(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    held = msgspec.json.encode(lease.Held("host/4711/x", "vacuum", now_us() + 20_000_000))
    (home / "lake" / lease.FILE).write_bytes(held)
    for arguments in (["compact"], ["vacuum"], ["rebuild"], ["redrive"]):
        code, shown = lake(capsys, home, *arguments)
        assert code == 2 and "another process maintains the lake" in shown and "4711" in shown
    assert lake(capsys, home, "verify")[0] == 0


@pytest.mark.parametrize(("arguments", "told"), [
    (["vacuum", "--retention", "59m"], "shorter retention than an hour"),
    (["vacuum", "--retention", "soon"], "not a time"), (["rebuild", "--undo"], "no lake of before"),
    (["rebuild", "--undo", "--check"], "one of --check"), (["rebuild", "--dry-run"], "goes with --discard-old"),
    (["polish"], "invalid choice")])
def test_mistakes(home: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], told: str) -> None:
    code, shown = lake(capsys, home, *arguments)
    assert code == 2 and told in shown and "Traceback" not in shown


def test_an_old_orphan_goes(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    orphan = home / "lake" / "turns" / "orphan.parquet"
    orphan.write_bytes(b"half")
    then = time.time() - 8 * 86400
    os.utime(orphan, (then, then))
    code, shown = lake(capsys, home, "doctor")
    assert code == 0 and "turns/orphan.parquet" in shown and "headrace lake vacuum" in shown
    assert lake(capsys, home, "vacuum")[1].count("orphan.parquet") == 1
    assert not orphan.exists()


def test_a_home_without_a_lake_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, shown = lake(capsys, tmp_path / "nothing", "verify")
    assert code == 2 and "nothing was recorded here yet" in shown
