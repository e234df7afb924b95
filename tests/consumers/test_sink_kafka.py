"""The sink on a real Kafka broker: killed at every named place, paused beyond its session, two at once, and a broker
that restarts under it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import kafka
import pytest

from eventlog.inspection import inspect_log
from lake.gaps import gaps, lost
from pipelines.checks import check_offsets_contiguous
from replay.audit import differences
from schemas.envelope import Event, to_headers
from schemas.settings import Settings
from schemas.topics import TOPICS, TRAJECTORIES
from tests.consumers.episodes import episode
from tests.consumers.test_sink_crash import (
    Setting,
    assert_exactly_once,
    finished,
    killed,
    mislead_the_group,
    paused,
)
from tests.eventlog.conftest import broker, forget_topics
from tests.lake.histories import rows, whole_story

__all__ = ["broker"]


@pytest.fixture
def setting(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Setting]:
    running = request.getfixturevalue("broker")
    forget_topics(running.address)
    setting = Setting(Settings(home=str(tmp_path / "home"), log=running.log_setting))
    yield setting
    setting.close()


def test_every_event_of_a_kafka_log_arrives_once(setting: Setting, tmp_path: Path) -> None:
    whole_story(setting.story)
    setting.append()
    for failpoint in ("sink:before_write", "sink:after_data_file@2", "sink:after_table:turns",
                      "sink:after_table:events", "sink:before_offset_commit"):
        assert killed(setting.sink(failpoint)), failpoint
        setting.tell_more(failpoint)
    sinks = [setting.sink(member=name) for name in ("sink", "other")]
    for number in range(20):
        setting.tell_more(f"more-{number}")
    for sink in sinks:
        finished(sink)
    finished(setting.sink())
    assert_exactly_once(setting, tmp_path)


@pytest.mark.parametrize("member", ["zombie", "sink"])
def test_a_sink_that_slept_beyond_its_session_changes_nothing(setting: Setting, tmp_path: Path, member: str) -> None:
    """Its partitions went to another member, or to a process that bears its own name."""
    zombie = paused(setting, "sink:after_table:turns", member)
    finished(setting.sink(member="sink"))
    setting.tell_more("later")
    zombie.send_signal(signal.SIGCONT)
    assert zombie.wait(90) in (0, 1)  # A process of its own name shuts it out: then it ends with an error.
    finished(setting.sink(member="sink"))
    assert_exactly_once(setting, tmp_path)


def test_a_broker_that_restarts_under_the_sink_costs_time_only(
        setting: Setting, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    whole_story(setting.story)
    setting.append()
    sink = paused(setting, "sink:after_table:turns", "sink")
    running = request.getfixturevalue("broker")
    running.stop()
    sink.send_signal(signal.SIGCONT)
    running.start()
    setting.tell_more("later")
    finished(sink)
    finished(setting.sink())
    assert_exactly_once(setting, tmp_path)


def test_marks_of_transactions_are_no_gaps(setting: Setting, request: pytest.FixtureRequest) -> None:
    """A foreign writer that uses transactions: what it took back is not there, and offsets that hold no record, the
    last one too, hold nothing up."""
    wanted: list[Event] = []
    producer = kafka.KafkaProducer(bootstrap_servers=request.getfixturevalue("broker").address,
                                   transactional_id="foreign")
    producer.init_transactions()
    for number in range(6):
        told = episode(f"e-{number}", None)
        producer.begin_transaction()
        for one in told:
            producer.send(TRAJECTORIES, one.data, key=b"e", headers=to_headers(one), partition=0)
        if number % 3 == 2:
            producer.flush()
            producer.abort_transaction()
        else:
            producer.commit_transaction()
            wanted += told
    producer.close()
    finished(setting.sink())
    lake = setting.lake()
    assert sorted(rows(lake, "select id from events")) == sorted((one.id,) for one in wanted)
    assert lake.positions() == {part: end for part, end in setting.log.ends(TOPICS).items() if end}
    assert any("are missing" in problem for problem in lake.verify())
    assert lake.verify(contiguous=False) == []
    with closing(inspect_log(setting.settings)) as log:
        assert gaps(lake) and list(lost(gaps(lake), log)) == [], "the log says that they are marks"
        assert list(differences(lake, lake.artifacts, log)) == []
    outcome = check_offsets_contiguous(lake, log=partial(inspect_log, setting.settings))
    assert outcome.passed and "marks of transactions" in outcome.found
    assert not check_offsets_contiguous(lake).passed, "nobody to ask"


def test_offsets_of_the_group_have_no_say(setting: Setting, tmp_path: Path) -> None:
    mislead_the_group(setting)
    assert_exactly_once(setting, tmp_path)
