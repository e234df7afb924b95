"""What is on disk when a commit returns, and in which order it got there: the data file before the log's entry that
names it, both before the next table, `events` last. And what a power cut may leave."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from artifacts.store import ArtifactStore
from consumers.folding import Folding
from lake import open_lake
from lake.lake import Lake
from lake.writer import WriterTable
from schemas.envelope import Record
from schemas.errors import LakeError
from schemas.settings import Settings
from tests.lake.histories import IDENTITY, Story, flush_of, pour, records_of, rows, whole_story


class Disk:
    """What was synced, in order: files and folders of the lake by their inodes (a file may get its name later), and
    the size that a file had then."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._root, self.synced = root, list[tuple[int, int]]()
        fsync = os.fsync

        def watched(descriptor: int) -> None:
            fsync(descriptor)
            path, found = Path(os.readlink(f"/proc/self/fd/{descriptor}")), os.fstat(descriptor)
            if path.is_relative_to(root):
                size = -1 if stat.S_ISDIR(found.st_mode) else found.st_size
                self.synced.append((found.st_ino, size))

        monkeypatch.setattr("os.fsync", watched)

    def when(self, name: str) -> int:
        """The first time that the file was synced as it is now, and after that its folder."""
        path = self._root / name
        at = self.synced.index((path.stat().st_ino, path.stat().st_size))
        self.synced.index((path.parent.stat().st_ino, -1), at)
        return at


@pytest.fixture
def disk(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(lake.root, monkeypatch)


def entries(lake: Lake, table: str) -> list[str]:
    return sorted(f"{table}/{stored.name}" for stored in lake.tables.at(table).list("_delta_log/0")
                  if stored.name.endswith(".json"))


def test_a_commit_is_on_disk_in_the_right_order_when_it_returns(
        lake: Lake, artifacts: ArtifactStore, story: Story, disk: Disk) -> None:
    whole_story(story)
    records = records_of(story.told)
    tables, start, end = flush_of(Folding(artifacts), records)
    lake.bind(IDENTITY)
    lake.commit(tables, start, end)
    on_disk = {}
    for table in tables:
        data = [f"{table}/{stored.name}" for stored in lake.tables.at(table).list() if "/" not in stored.name]
        made, *added = entries(lake, table)
        assert len(data) == len(added) == 1
        assert max(disk.when(data[0]), disk.when(made)) < disk.when(added[0])
        on_disk[table] = disk.when(added[0])
    events = next(stored.name for stored in lake.tables.at("events").list() if "/" not in stored.name)
    assert max(at for table, at in on_disk.items() if table != "events") < disk.when(f"events/{events}")


def test_checkpoints_and_compactions_are_on_disk_too(
        lake: Lake, artifacts: ArtifactStore, story: Story, disk: Disk) -> None:
    whole_story(story)
    pour(lake, artifacts, records_of(story.told), size=20)
    lake.compact()
    for table in ("turns", "events"):
        for stored in lake.tables.at(table).list():
            if stored.name.endswith((".parquet", ".json", "_last_checkpoint")):
                disk.when(f"{table}/{stored.name}")


def test_what_another_process_left_unsynced_is_synced_before_it_is_built_on(
        lake: Lake, settings: Settings, artifacts: ArtifactStore, story: Story,
        monkeypatch: pytest.MonkeyPatch) -> None:
    whole_story(story)
    records = records_of(story.told)
    folding = Folding(artifacts)
    lake.bind(IDENTITY)
    lake.commit(*flush_of(folding, records[:20]))
    disk = Disk(lake.root, monkeypatch)
    open_lake(settings, artifacts).bind(IDENTITY)
    for table in ("requests", "turns", "events"):
        disk.when(entries(lake, table)[-1])
    disk.synced.clear()
    lake.commit(*flush_of(folding, records[20:30]))
    left = entries(lake, "events")[-1]
    disk.synced.clear()
    WriterTable(lake.tables, "events", IDENTITY).log()
    disk.when(left)


def test_an_entry_that_a_power_cut_left_empty_costs_nothing(
        lake: Lake, settings: Settings, artifacts: ArtifactStore, story: Story) -> None:
    """The newest entry of `events`, not yet synced: the flush is not there, and is written again."""
    whole_story(story)
    records = records_of(story.told)
    pour(lake, artifacts, records[:20])
    folding = Folding(artifacts)
    flush_of(folding, records[:20])
    late = flush_of(folding, records[20:])
    at = lake.positions()
    lake.commit(*late)
    (lake.root / entries(lake, "events")[-1]).write_bytes(b"")
    fresh = open_lake(settings, artifacts)
    fresh.bind(IDENTITY)
    assert fresh.positions() == at
    fresh.commit(*late)
    assert rows(fresh, "select count(*) from events") == [(len(records),)]
    assert fresh.verify() == []


def test_a_disk_that_cannot_sync_stops_the_flush_before_events(
        lake: Lake, artifacts: ArtifactStore, story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    whole_story(story)
    records = records_of(story.told)
    flush = flush_of(Folding(artifacts), records)
    lake.bind(IDENTITY)
    with monkeypatch.context() as patch, pytest.raises(LakeError, match="not safe from a power cut") as wrong:
        patch.setattr("os.fsync", failing("/turns/_delta_log"))
        lake.commit(*flush)
    assert "disk" in wrong.value.hint and lake.positions() == {}
    lake.commit(*flush)
    assert lake.verify() == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)], capture_output=True)
    if mounted.returncode:
        pytest.skip("a small disk needs the right to mount")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def half_told(home: Path, artifacts: ArtifactStore, story: Story) -> tuple[Lake, list[Record], Any]:
    """A lake with ten events of a story, all of its records, and the flush of those that are left."""
    whole_story(story)
    records = records_of(story.told)
    folding = Folding(artifacts)
    lake = open_lake(Settings(home=str(home)), artifacts)
    lake.bind(IDENTITY)
    lake.commit(*flush_of(folding, records[:10]))
    return lake, records, flush_of(folding, records[10:])


def test_a_disk_that_is_full_stops_the_flush_and_the_next_one_goes_on(
        small_disk: Path, artifacts: ArtifactStore, story: Story) -> None:
    lake, records, late = half_told(small_disk, artifacts, story)
    filler = small_disk / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(b"." * 4096)
    for _ in range(2):
        with pytest.raises(LakeError, match="No space left") as wrong:
            lake.commit(*late)
        assert "\n" not in str(wrong.value) and ("space" in wrong.value.hint or "full" in wrong.value.hint)
    filler.unlink()
    lake.commit(*late)
    assert rows(lake, "select count(*) from events") == [(len(records),)]
    assert lake.verify() == []


def test_maintenance_that_fails_on_a_full_disk_holds_nobody_up_afterwards(
        small_disk: Path, artifacts: ArtifactStore, story: Story) -> None:
    lake, _, late = half_told(small_disk, artifacts, story)
    lake.commit(*late)
    filler = small_disk / "filler"

    def fill(table: str) -> None:
        with suppress(OSError), filler.open("ab", buffering=0) as file:
            while True:
                file.write(b"." * 4096)

    with pytest.raises(LakeError, match="No space left"):
        lake.compact(advance=fill)
    filler.unlink()
    lake.compact()
    assert lake.verify() == []


def test_a_folder_that_may_only_be_read_is_read_and_told(
        small_disk: Path, artifacts: ArtifactStore, story: Story) -> None:
    lake, _, late = half_told(small_disk, artifacts, story)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(LakeError, match=r"[Rr]ead-only") as wrong:
        lake.commit(*late)
    assert wrong.value.hint and "\n" not in str(wrong.value)
    assert rows(open_lake(Settings(home=str(small_disk)), artifacts), "select count(*) from events") == [(10,)]
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    lake.commit(*late)
    assert lake.verify() == []


def failing(where: str) -> Callable[[int], None]:
    fsync = os.fsync

    def fail(descriptor: int) -> None:
        if where in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(28, "No space left on device")
        fsync(descriptor)

    return fail


def test_a_home_that_cannot_be_written_is_a_clear_error(artifacts: ArtifactStore) -> None:
    lake = open_lake(Settings(home="/proc/nothing"), artifacts)
    assert rows(lake, "select count(*) from events") == [(0,)]
    with pytest.raises(LakeError, match="cannot be made") as wrong:
        lake.bind(IDENTITY)
    assert "writable" in wrong.value.hint
