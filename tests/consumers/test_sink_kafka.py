"""The sink on a real Kafka broker: killed, restarted, and two at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas.settings import Settings
from tests.consumers.test_sink_crash import Setting, assert_exactly_once, finished, killed
from tests.eventlog.conftest import start_broker
from tests.lake.histories import whole_story


@pytest.fixture
def setting(tmp_path: Path) -> Iterator[Setting]:
    broker = start_broker(tmp_path / "broker")
    setting = Setting(Settings(home=str(tmp_path / "home"), log=broker.log_setting))
    yield setting
    setting.close()
    broker.stop()


def test_every_event_of_a_kafka_log_arrives_once(setting: Setting, tmp_path: Path) -> None:
    whole_story(setting.story)
    setting.append()
    for failpoint in ("sink:after_table:turns", "sink:before_offset_commit"):
        assert killed(setting.sink(failpoint)), failpoint
        setting.tell_more(failpoint)
    sinks = [setting.sink(member=name) for name in ("sink", "other")]
    for number in range(20):
        setting.tell_more(f"more-{number}")
    for sink in sinks:
        finished(sink)
    finished(setting.sink())
    assert_exactly_once(setting, tmp_path)
