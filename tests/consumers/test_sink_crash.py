"""Sinks as processes that are killed and paused at named places, on a real SQLite log.

The measure: the lake holds every event of the log once, and the same rows as a lake that nobody disturbed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from artifacts import open_store
from consumers.sink import GROUP, Sink
from eventlog import open_log
from eventlog.log import TopicPartition
from lake import open_lake
from lake.lake import Lake
from schemas.envelope import Event
from schemas.failpoints import VARIABLE
from schemas.settings import Settings
from schemas.tables import COMMIT_ORDER
from schemas.topics import TOPICS
from tests.lake.histories import Story, rows, whole_story

REPOSITORY = Path(__file__).resolve().parents[2]


class Setting:
    """A home with a log that grows, and sinks to start on it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.store = open_store(self.settings)
        self.log = open_log(self.settings)
        self.story = Story(self.store)
        self.appended = 0
        self.processes: list[subprocess.Popen[bytes]] = []

    def append(self) -> None:
        """Put into the log what the story told since."""
        new = self.story.told[self.appended:]
        self.appended = len(self.story.told)
        for topic in TOPICS:
            events: list[Event] = [event for where, event in new if where == topic]
            self.log.append(topic, events).result()

    def tell_more(self, name: str) -> None:
        self.story.request(f"{name}-1", f"{name}-2")
        self.story.episode(f"{name}-1")
        self.story.start(f"{name}-2")
        self.story.turn(f"{name}-2")
        self.append()

    def sink(self, failpoint: str = "", member: str = "sink", lease_s: float = 6.0) -> subprocess.Popen[bytes]:
        environment = {key: value for key, value in os.environ.items() if key != VARIABLE}
        if failpoint:
            environment[VARIABLE] = failpoint
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.consumers.sink_process", self.settings.home, self.settings.log, member,
             str(lease_s)], env=environment, cwd=REPOSITORY, stderr=subprocess.PIPE)
        self.processes.append(process)
        return process

    def lake(self) -> Lake:
        return open_lake(self.settings, self.store)

    def close(self) -> None:
        for process in self.processes:
            if process.returncode is None:
                process.kill()
            process.communicate()
        self.log.close()


@pytest.fixture
def setting(tmp_path: Path) -> Iterator[Setting]:
    setting = Setting(Settings(home=str(tmp_path / "home")))
    yield setting
    setting.close()


def contents(lake: Lake) -> dict[str, list[tuple[object, ...]]]:
    return {name: sorted(rows(lake, f"select * from raw_{name}"), key=repr) for name in COMMIT_ORDER}


def assert_exactly_once(setting: Setting, tmp_path: Path) -> None:
    lake = setting.lake()
    assert sorted(rows(lake, "select id from events")) == sorted((event.id,) for _, event in setting.story.told)
    assert lake.positions() == {part: end for part, end in setting.log.ends(TOPICS).items() if end}
    assert lake.verify() == []
    undisturbed = open_lake(Settings(home=str(tmp_path / "undisturbed")), setting.store)
    Sink(setting.log, undisturbed, setting.store, setting.settings, member="undisturbed").run(
        threading.Event(), until_idle=True)
    assert contents(lake) == contents(undisturbed)


def finished(process: subprocess.Popen[bytes]) -> None:
    _, told = process.communicate(timeout=90)
    assert process.returncode == 0, told.decode()


def killed(process: subprocess.Popen[bytes]) -> bool:
    return process.wait(60) == -signal.SIGKILL


def stopped(process: subprocess.Popen[bytes]) -> bool:
    """Waits until the process has paused at its failpoint."""
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    return os.WIFSTOPPED(status)


def test_killed_at_every_place_it_loses_and_doubles_nothing(setting: Setting, tmp_path: Path) -> None:
    whole_story(setting.story)
    setting.append()
    for failpoint in ("sink:before_write", "sink:after_data_file@2", "sink:after_table:turns", "sink:after_data_file@9",
                      "sink:after_table:events", "sink:before_offset_commit@2"):
        assert killed(setting.sink(failpoint)), failpoint
        setting.tell_more(failpoint)
    finished(setting.sink())
    assert_exactly_once(setting, tmp_path)


def mislead_the_group(setting: Setting) -> None:
    """Commits of somebody who lost the partitions come late: beyond what the lake holds, then far before it."""
    whole_story(setting.story)
    setting.append()
    _commit(setting, setting.log.ends(TOPICS))
    finished(setting.sink())
    setting.tell_more("more")
    _commit(setting, dict.fromkeys(setting.log.ends(TOPICS), 0))
    finished(setting.sink())
    setting.tell_more("later")
    _commit(setting, setting.log.ends(TOPICS))
    finished(setting.sink())


def _commit(setting: Setting, offsets: Mapping[TopicPartition, int]) -> None:
    late = setting.log.subscribe(TOPICS, GROUP, member="sink")
    try:
        while len(late.assignment()) < len(offsets):
            late.poll(0.5, 1)
        late.commit(offsets)
        late.poll(0.5, 1)
    finally:
        late.close()


def test_offsets_of_the_group_have_no_say(setting: Setting, tmp_path: Path) -> None:
    mislead_the_group(setting)
    assert_exactly_once(setting, tmp_path)


def paused(setting: Setting, place: str, member: str, lease_s: float = 6.0) -> subprocess.Popen[bytes]:
    """A sink that sleeps in its first flush: it has not written to the log for a while then, so it holds no lock on
    SQLite's file, which would stop everybody."""
    whole_story(setting.story)
    setting.append()
    finished(setting.sink())
    setting.tell_more("more")
    zombie = setting.sink(f"{place}!stop", member, lease_s)
    assert stopped(zombie)
    return zombie


@pytest.mark.parametrize("place", ["sink:before_write", "sink:after_table:requests"])
def test_a_paused_sink_that_wakes_up_changes_nothing(setting: Setting, tmp_path: Path, place: str) -> None:
    """Its partitions were taken over under the same static name while it slept in the middle of a flush."""
    zombie = paused(setting, place, "sink", 600.0)
    finished(setting.sink())
    setting.tell_more("later")
    finished(setting.sink())
    zombie.send_signal(signal.SIGCONT)
    finished(zombie)
    assert_exactly_once(setting, tmp_path)


def test_a_sink_that_slept_beyond_its_lease_goes_on_as_one_of_two(setting: Setting, tmp_path: Path) -> None:
    zombie = paused(setting, "sink:after_table:turns", "one", 4.0)
    finished(setting.sink(member="two"))
    setting.tell_more("later")
    zombie.send_signal(signal.SIGCONT)
    finished(zombie)
    assert_exactly_once(setting, tmp_path)


def test_two_sinks_at_once_share_the_work(setting: Setting, tmp_path: Path) -> None:
    whole_story(setting.story)
    setting.append()
    sinks = [setting.sink(member=name) for name in ("one", "two")]
    for number in range(30):
        setting.tell_more(f"more-{number}")
    for sink in sinks:
        finished(sink)
    finished(setting.sink(member="one"))
    assert_exactly_once(setting, tmp_path)
