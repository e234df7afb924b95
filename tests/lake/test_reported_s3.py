"""What others reported of sinks and lakes on S3-compatible storage, tried on ours: answers that are lost, refused or
late, where the put was done or was not."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from artifacts import open_store
from artifacts.store import ArtifactStore
from consumers.folding import Folding
from consumers.sink import Sink
from lake import open_lake
from lake.content import content
from lake.lake import Lake
from schemas.errors import CommitConflictError
from schemas.settings import Settings
from tests.consumers.test_sink_crash import Setting, assert_exactly_once
from tests.lake.faulty_s3 import FaultyS3
from tests.lake.histories import IDENTITY, Story, flush_of, records_of, whole_story
from tests.s3_server import S3Server


@pytest.fixture
def storage() -> str:
    return "s3"


@pytest.fixture
def faulty(s3_server: S3Server) -> Iterator[FaultyS3]:
    server = FaultyS3(int(s3_server.endpoint.rpartition(":")[2]))
    yield server
    server.stop()


@pytest.fixture
def setting(settings: Settings) -> Iterator[Setting]:
    setting = Setting(settings)
    setting.tell_more("some")
    yield setting
    setting.close()


def lake_behind(faulty: FaultyS3, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """The lake as a process sees it whose way to storage is bad."""
    with monkeypatch.context() as patch:
        for name, value in faulty.environment.items():
            patch.setenv(name, value)
        return open_lake(settings, open_store(settings))


def entry(table: str, version: int) -> str:
    return rf"/{table}/_delta_log/{version:020d}\.json"


def test_a_sink_on_bad_storage_commits_everything_once(
        setting: Setting, faulty: FaultyS3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """delta-io/delta-rs#268, redpanda-data/connect#4591: done, reported as failed, tried again with the next number.
    confluentinc/kafka-connect-storage-cloud#269, #855: 503 to a commit, and the task went on without it."""
    faulty.plan("PUT", entry("turns", 1), "lose")
    faulty.plan("PUT", r"/tool_calls/[^/]+\.parquet", 503, times=5)
    faulty.plan("PUT", entry("scores", 1), 503, times=5)
    faulty.plan("PUT", entry("events", 1), "lose")
    lake = lake_behind(faulty, setting.settings, monkeypatch)
    Sink(setting.log, lake, setting.store, setting.settings, member="sink").run(threading.Event(), until_idle=True)
    assert faulty.rules == [] and sum(status == 200 for _, status in faulty.met) == 2
    assert_exactly_once(setting, tmp_path)


def test_a_conflict_that_left_nothing_is_no_commit_of_another(
        faulty: FaultyS3, settings: Settings, artifacts: ArtifactStore, story: Story,
        monkeypatch: pytest.MonkeyPatch) -> None:
    """apache/arrow-rs-object-store#852: 409 to a conditional put means try again, and reads as `is there already`."""
    lake = lake_behind(faulty, settings, monkeypatch)
    lake.bind(IDENTITY)
    for name in ("scores", "events"):
        faulty.plan("PUT", entry(name, 1), 409)
    flush = flushes(artifacts, story)[2]
    lake.commit(*flush)
    assert len(faulty.met) == 2 and lake.positions() == flush[2]


def flushes(artifacts: ArtifactStore, story: Story) -> list[tuple[Any, Any, Any]]:
    """Of different topics: none builds on another."""
    whole_story(story)
    records = records_of(story.told, 1)
    return [flush_of(Folding(artifacts), [record for record in records if record.position.topic == topic])
            for topic in ("requests", "trajectories", "scores")]


def test_an_entry_that_does_not_show_yet_is_looked_for_again(
        faulty: FaultyS3, settings: Settings, lake: Lake, artifacts: ArtifactStore, story: Story,
        monkeypatch: pytest.MonkeyPatch) -> None:
    """A stale read: the put says that another's entry is there, the first looks at it say that it is not."""
    first, second, third = flushes(artifacts, story)
    stale = lake_behind(faulty, settings, monkeypatch)
    for one in (stale, lake):
        one.bind(IDENTITY)
    stale.commit(*first)
    lake.commit(*second)
    faulty.plan("GET", entry("events", 2), 404, times=2)
    stale.commit(*third)
    assert len(faulty.met) == 2 and lake.positions() == {**first[2], **second[2], **third[2]}


def test_a_put_that_arrives_after_another_sink_went_on_changes_nothing(
        faulty: FaultyS3, settings: Settings, lake: Lake, artifacts: ArtifactStore, story: Story,
        monkeypatch: pytest.MonkeyPatch) -> None:
    """apache/iceberg#14425, #10765: a commit is still on its way when its writer was replaced."""
    first, second, _ = flushes(artifacts, story)
    slow, told = lake_behind(faulty, settings, monkeypatch), list[Exception]()
    for one in (slow, lake):
        one.bind(IDENTITY)
    faulty.plan("PUT", entry("events", 1), "hold")

    def commit() -> None:
        try:
            slow.commit(*first)
        except CommitConflictError as wrong:
            told.append(wrong)

    zombie = threading.Thread(target=commit)
    zombie.start()
    assert faulty.held.wait(60)
    lake.commit(*first)
    lake.commit(*second)
    before = content(lake)
    faulty.release()
    zombie.join(60)
    assert len(told) == 1 and [status for _, status in faulty.met] == [412]
    assert content(lake) == before and lake.positions() == {**first[2], **second[2]}
