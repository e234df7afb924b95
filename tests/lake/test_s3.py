"""A lake in S3-compatible storage: sinks that are killed, paused and cut off, what SQL may read, what is told when it
fails. The commit itself is tested in `test_commit.py` over both storages."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from artifacts import open_store
from artifacts.s3_folder import S3Folder
from artifacts.store import ArtifactStore, file_of
from consumers.sink import Sink
from eventlog.log import TopicPartition
from lake import open_lake
from lake.lake import Lake
from schemas.errors import ArtifactStorageError, HeadraceError, LakeError, QueryError
from schemas.settings import Settings
from tests.consumers.test_sink_crash import Setting, assert_exactly_once, finished, killed, stopped
from tests.gate import Gate
from tests.lake.histories import IDENTITY, Story, pour, records_of, rows, whole_story
from tests.s3_server import CREDENTIALS, S3Server


@pytest.fixture
def storage() -> str:
    return "s3"


@pytest.fixture
def setting(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Setting]:
    monkeypatch.setenv("HEADRACE_LAKE", settings.lake)
    monkeypatch.setenv("HEADRACE_ARTIFACTS", settings.artifacts)
    setting = Setting(settings)
    yield setting
    setting.close()


@pytest.fixture
def filled(lake: Lake, artifacts: ArtifactStore, story: Story) -> Lake:
    whole_story(story)
    pour(lake, artifacts, records_of(story.told))
    return lake


def test_sinks_that_are_killed_everywhere_leave_every_event_once(setting: Setting, tmp_path: Path) -> None:
    whole_story(setting.story)
    setting.append()
    for place in ("sink:before_write", "sink:after_data_file@2", "sink:after_log_entry@2", "sink:after_table:turns",
                  "sink:after_table:events", "sink:before_offset_commit"):
        sink = setting.sink(place)
        assert killed(sink), f"{place}: {sink.communicate()[1].decode()}"
        setting.tell_more(place.replace(":", "-"))
    finished(setting.sink())
    assert_exactly_once(setting, tmp_path)


def test_two_sinks_and_one_that_sleeps_write_every_event_once(setting: Setting, tmp_path: Path) -> None:
    whole_story(setting.story)
    setting.append()
    zombie = setting.sink("sink:after_table:turns!stop", "zombie", 600.0)
    assert stopped(zombie)
    setting.tell_more("more")
    both = [setting.sink(member=name) for name in ("zombie", "other")]
    for sink in both:
        finished(sink)
    zombie.send_signal(18)
    finished(zombie)
    finished(setting.sink())
    assert_exactly_once(setting, tmp_path)


def test_a_sink_goes_on_when_storage_is_back(
        s3_server: S3Server, setting: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture) -> None:
    gate = Gate(int(s3_server.endpoint.rpartition(":")[2]))
    with monkeypatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{gate.port}")
        store = open_store(setting.settings)
        lake = open_lake(setting.settings, store)
    sink = Sink(setting.log, lake, store, setting.settings, member="sink")
    whole_story(setting.story)
    setting.append()
    sink.run(threading.Event(), until_idle=True)
    setting.tell_more("more")

    class Reopen(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "starting over" in record.getMessage():
                gate.open()
                logging.getLogger("headrace.sink").removeHandler(self)

    again = Sink(setting.log, lake, store, setting.settings, member="sink")
    commit = lake.commit

    def cut_off(*flush: object) -> None:
        monkeypatch.setattr(lake, "commit", commit)
        logging.getLogger("headrace.sink").addHandler(Reopen())
        gate.shut()
        commit(*flush)  # type: ignore[arg-type]

    monkeypatch.setattr(lake, "commit", cut_off)
    again.run(threading.Event(), until_idle=True)
    assert "does not answer" in caplog.text or "error" in caplog.text
    gate.shut()
    assert_exactly_once(setting, tmp_path)


def test_sql_reads_the_lakes_data_files_and_nothing_else(filled: Lake, artifacts: ArtifactStore) -> None:
    base = filled.folder.url.replace("s3://", "lake://")
    data = next(stored for stored in filled.tables.at("turns").list() if stored.name.endswith(".parquet"))
    own = f"{base}/turns/{data.name}#{data.size_bytes}"
    assert rows(filled, f"select count(*) > 0 from read_parquet('{own}')") == [(True,)]
    reference = artifacts.put(b"a secret of another folder")
    secret = f"{base.rpartition('/')[0]}/artifacts/{file_of(reference.digest)}"
    for path in (secret, f"{secret}#5", f"{base}/turns/_delta_log/00000000000000000000.json#9", f"{base}/current.json",
                 f"{base}/turns/../../artifacts/x.parquet#5", own.replace("lake://", "s3://"), "/etc/passwd",
                 "http://127.0.0.1/x", f"{base}/*/*.parquet", "lake://other/turns/x.parquet#5"):
        for read in ("read_text", "read_blob", "read_parquet", "glob"):
            refused = None
            try:
                refused = filled.sql(f"select * from {read}('{path}')")
            except (QueryError, LakeError):
                continue
            assert refused.num_rows == 0, (read, path)
    before = sorted(filled.folder.list())
    for query in (f"copy (select 1) to '{base}/turns/x.parquet'", f"attach '{base}/turns/x.parquet#1'"):
        with pytest.raises(QueryError):
            filled.sql(query)
    assert sorted(filled.folder.list()) == before


def test_a_lost_file_is_told_by_name(filled: Lake, settings: Settings, artifacts: ArtifactStore) -> None:
    turns = filled.tables.at("turns")
    lost = next(stored.name for stored in turns.list() if stored.name.endswith(".parquet"))
    turns.remove(lost)
    for lake in (filled, open_lake(settings, artifacts)):
        with pytest.raises(LakeError, match="cannot be read") as wrong:
            lake.sql("select * from turns")
        assert lost in str(wrong.value) and "Traceback" not in str(wrong.value) and "\n" not in str(wrong.value)


def steps(settings: Settings) -> list[HeadraceError]:
    """What bind, a query and the positions say."""
    lake = open_lake(settings, open_store(settings))
    told = []
    for step in (lambda: lake.bind(IDENTITY), lambda: lake.sql("select * from turns"), lake.positions):
        with pytest.raises(LakeError) as wrong:
            step()
        told.append(wrong.value)
    return told


def test_a_missing_bucket_is_a_clear_error(settings: Settings, bucket: str) -> None:
    for wrong in steps(Settings(home=settings.home, lake=f"{bucket}-nowhere/lake")):
        assert "no such bucket" in str(wrong) and f"{bucket}-nowhere" in str(wrong) and "\n" not in str(wrong)


def test_an_endpoint_that_is_down_is_a_clear_error(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    for wrong in steps(settings):
        assert "does not answer" in str(wrong) and "AWS_ENDPOINT_URL" in str(wrong) and "\n" not in str(wrong)


def test_wrong_credentials_are_a_clear_error_and_stay_secret(settings: Settings, s3_server: S3Server) -> None:
    s3_server.check_credentials(True)
    try:
        for wrong in steps(settings):
            assert "refused the credentials" in str(wrong)
            assert CREDENTIALS["AWS_SECRET_ACCESS_KEY"] not in wrong.paragraph() and "\n" not in str(wrong)
    finally:
        s3_server.check_credentials(False)


def test_storage_that_does_not_answer_makes_no_dead_letter(
        setting: Setting, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A manifest that cannot be read now may be there."""
    whole_story(setting.story)
    setting.append()
    lake = setting.lake()
    with monkeypatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
        cut_off = open_store(setting.settings)
    monkeypatch.setattr("consumers.sink._MAX_FAILURES", 2)
    with pytest.raises(ArtifactStorageError, match="does not answer"):
        Sink(setting.log, lake, cut_off, setting.settings, member="sink").run(threading.Event(), until_idle=True)
    Sink(setting.log, lake, setting.store, setting.settings, member="sink").run(threading.Event(), until_idle=True)
    assert rows(lake, "select count(*) from dead_letters where reason like 'batch%'") == [(0,)]
    assert rows(lake, "select count(*) from batch_rows") != [(0,)]
    part: TopicPartition = ("training", 0)
    assert lake.positions()[part] == setting.log.ends(["training"])[part]


def test_storage_that_ignores_conditions_is_refused(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sinks would both win there."""
    def always(folder: S3Folder, name: str, data: bytes) -> bool:
        folder.write(name, data)
        return True

    monkeypatch.setattr(S3Folder, "create", always)
    with pytest.raises(LakeError, match="overwrites files") as wrong:
        lake.bind(IDENTITY)
    assert "If-None-Match" in wrong.value.hint
