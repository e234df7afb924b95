"""The sink in process, against a real SQLite log."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from artifacts.store import DirectoryStore
from consumers.folding import Folding
from consumers.sink import Sink
from eventlog import open_log
from eventlog.log import EventLog, Subscription
from lake import open_lake
from lake.lake import Lake
from schemas.envelope import Event, Record
from schemas.errors import CommitConflictError, LakeError
from schemas.events import CancelRequested, DeadLettered, StepCompleted, ToolCalled, ToolReturned
from schemas.settings import Settings
from schemas.topics import TOPICS
from tests.lake.histories import IDENTITY, Story, flush_of, pour, records_of, rows, whole_story


@pytest.fixture
def log(settings: Settings) -> Iterator[EventLog]:
    log = open_log(settings)
    yield log
    log.close()


@pytest.fixture
def lake(settings: Settings, artifacts: DirectoryStore) -> Lake:
    return open_lake(settings, artifacts)


@pytest.fixture
def story(artifacts: DirectoryStore) -> Story:
    return Story(artifacts)


def append(log: EventLog, told: list[tuple[str, Event]]) -> None:
    for topic, event in told:
        log.append(topic, [event]).result()


def drain(log: EventLog, lake: Lake, artifacts: DirectoryStore, settings: Settings) -> Sink:
    sink = Sink(log, lake, artifacts, settings)
    sink.run(threading.Event(), until_idle=True)
    return sink


def test_the_lake_holds_what_the_log_holds(
        log: EventLog, lake: Lake, artifacts: DirectoryStore, settings: Settings, story: Story) -> None:
    whole_story(story)
    append(log, story.told)
    drain(log, lake, artifacts, settings)
    assert sorted(rows(lake, "select id from events")) == sorted((event.id,) for _, event in story.told)
    assert lake.positions() == {part: end for part, end in log.ends(("tasks", "requests", "trajectories", "scores",
                                                                     "training")).items() if end}
    assert lake.verify() == []


def test_rows_say_what_the_events_said(
        log: EventLog, lake: Lake, artifacts: DirectoryStore, settings: Settings, story: Story) -> None:
    story.request("e")
    story.start("e")
    story.turn("e", logprobs=True)
    story.call("e")
    story.turn("e", 1, logprobs=False)
    story.resume("e", "writer-2", restart=True, attempt=2)
    story.turn("e", source="writer-2")
    story.finish("e", source="writer-2")
    append(log, story.told)
    drain(log, lake, artifacts, settings)
    assert rows(lake, "select turn, attempt, context_tokens, generated_tokens, logprobs, version_min, version_max, "
                      'text from turns order by "offset"') == [
        (0, 1, [0, 1], [7, 8, 9], [-0.5, -0.25, -1.0], 2, 3, "turn 0"),
        (1, 1, [1, 2], [8, 9, 10], None, 2, 3, "turn 1"),
        (0, 2, [0, 1], [7, 8, 9], [-0.5, -0.25, -1.0], 2, 3, "turn 0")]
    assert rows(lake, "select call_id, tool, arguments, status, exit_code, output, finished_at >= started_at "
                      "from tool_calls") == [("call-0", "calc", "1 + 1", "ok", 0, "2", True)]
    assert rows(lake, "select episode_id, run_id, kind, policy, attempt, termination, version_min, version_max, "
                      "submission from episodes") == [
        ("e", "run-1", "tools", "tiny", 2, "completed", 2, 3, story.submission("e").digest)]


def test_a_fenced_writer_is_kept_and_appears_nowhere_else(
        log: EventLog, lake: Lake, artifacts: DirectoryStore, settings: Settings, story: Story) -> None:
    story.start("e")
    story.resume("e", "writer-2")
    zombie = [story.turn("e", 0, source="writer-1", sequence=2), story.turn("e", 5, source="writer-2", sequence=9)]
    story.turn("e", 1, source="writer-2")
    story.finish("e", source="writer-2")
    zombie.append(story.turn("e", 2, source="writer-1", sequence=4))
    append(log, story.told)
    drain(log, lake, artifacts, settings)
    assert rows(lake, 'select id, reason from events where not admitted order by "offset"') == [
        (zombie[0].id, "not_owner"), (zombie[1].id, "gap"), (zombie[2].id, "after_finish")]
    assert rows(lake, "select text from turns") == [("turn 1",)]


def test_bad_payloads_are_dead_letters_with_their_bytes(
        log: EventLog, lake: Lake, artifacts: DirectoryStore, settings: Settings, story: Story) -> None:
    whole_story(story)
    append(log, story.told)
    drain(log, lake, artifacts, settings)
    letters = rows(lake, "select topic, reason, data from dead_letters order by topic desc")
    assert [(topic, data) for topic, _, data in letters] == [
        ("trajectories", b"\x81\xa4turn\xc0"), ("requests", next(
            event.data for topic, event in story.told if topic == "requests" and event.name == "score.recorded"))]
    assert "turn" in letters[0][1] and "belongs to topic scores" in letters[1][1]
    assert rows(lake, "select admitted, reason from events where id = 'broken'") == [(True, "schema_violation")]
    assert rows(lake, "select type, version, admitted from events where id = 'strange'") == [
        ("episode.paused", 1, True)]


def test_large_letters_and_newer_versions_are_kept_whole_and_hold_nothing_up(
        log: EventLog, lake: Lake, artifacts: DirectoryStore, settings: Settings, story: Story) -> None:
    story.start("e")
    story.turn("e")
    large = b"\xc1" + bytes(3 << 20)
    story.told[-1] = ("trajectories", story.told[-1][1]._replace(id="large", data=large))
    story.turn("e", 1)
    newer = story.told[-1][1]._replace(id="newer", type="headrace.turn.generated.v9", data=b"\x81\xa1n\x01")
    story.told[-1] = ("trajectories", newer)
    story.turn("e", 2)
    story.finish("e")
    append(log, story.told)
    drain(log, lake, artifacts, settings)
    assert rows(lake, """select l."offset" = e."offset", l.data = e.data, octet_length(l.data), l.reason like '%schema%'
        from dead_letters l join events e using (topic, partition, "offset") where e.id = 'large'""") == [
            (True, True, len(large), True)]
    assert rows(lake, "select type, version, admitted, data from events where id = 'newer'") == [
        ("turn.generated", 9, True, newer.data)]
    assert rows(lake, "select text from turns") == [("turn 2",)]
    assert rows(lake, "select termination from episodes") == [("completed",)]
    assert lake.verify() == []


def test_a_value_that_fits_no_column_is_a_dead_letter(
        log: EventLog, lake: Lake, artifacts: DirectoryStore, settings: Settings, story: Story) -> None:
    story.trained(0, "batch-1")
    story.tell(StepCompleted(run_id="run-1", step=1, batch_id="b", metrics={"tokens": 1e300}), "run-1")
    append(log, story.told)
    drain(log, lake, artifacts, settings)
    assert rows(lake, "select step from steps") == [(0,)]
    assert rows(lake, "select count(*) from events") == [(3,)]
    assert "does not fit" in rows(lake, "select reason from dead_letters")[0][0]
    assert lake.verify() == []


@pytest.mark.parametrize("no_date", [2**63 - 1, -(2**63), 253_402_300_800_000_000])
def test_a_time_that_is_no_date_is_a_dead_letter(
        log: EventLog, lake: Lake, artifacts: DirectoryStore, settings: Settings, story: Story, no_date: int) -> None:
    """Readers of a table with such a time fail on all of its rows."""
    story.request("sound")
    story.tell(CancelRequested(episode_id="sound", at=no_date), "sound")
    story.tell(DeadLettered(topic="scores", partition=0, offset=0, reason="refused", data=b"x", at=no_date), "x")
    append(log, story.told)
    drain(log, lake, artifacts, settings)
    assert rows(lake, "select count(*) from requests") == [(1,)]
    assert rows(lake, "select count(*) from cancellations") == [(0,)]
    assert rows(lake, 'select "at", reason from dead_letters order by data desc') == [
        (None, "scores-0@0: refused"), (None, "a value does not fit its column in table cancellations")]
    assert lake.verify() == []


def test_a_batch_without_its_manifest_is_told(
        log: EventLog, lake: Lake, artifacts: DirectoryStore, settings: Settings, story: Story) -> None:
    ref = artifacts.put(b"{}")
    story.sealed("batch-1", 0, ref, 0)
    artifacts.path(ref.digest).unlink()
    unknown = artifacts.put(b'{"rows": [], "dispositions": [{"episode_id": "e", "disposition": "lost"}]}')
    story.sealed("batch-2", 1, unknown, 0)
    append(log, story.told)
    drain(log, lake, artifacts, settings)
    reasons = [reason for reason, in rows(lake, 'select reason from dead_letters order by "offset"')]
    assert "artifact is missing" in reasons[0] and "manifest violates its schema" in reasons[1]
    assert rows(lake, "select batch_id from batches order by 1") == [("batch-1",), ("batch-2",)]


def test_a_restarted_sink_restores_open_and_closed_episodes(
        log: EventLog, lake: Lake, artifacts: DirectoryStore, settings: Settings, story: Story) -> None:
    story.start("open")
    story.turn("open")
    story.step(ToolCalled(turn=0, call_id="c", tool="calc", arguments="1 + 1", at=story.time_us), "open")
    story.start("closed")
    story.finish("closed")
    append(log, story.told)
    drain(log, lake, artifacts, settings)
    before = len(story.told)
    story.step(ToolReturned(turn=0, call_id="c", status="ok", at=story.time_us), "open")
    story.turn("open", 1, source="zombie", sequence=4)
    story.turn("closed", 1, sequence=2)
    story.finish("open")
    append(log, story.told[before:])
    drain(log, open_lake(settings, artifacts), artifacts, settings)
    assert rows(lake, "select tool, arguments from tool_calls") == [("calc", "1 + 1")]
    assert rows(lake, "select episode_id, version_min from episodes order by 1") == [("closed", None), ("open", 2)]
    assert rows(lake, "select subject, reason from events where not admitted order by 1") == [
        ("closed", "after_finish"), ("open", "not_owner")]


def test_a_failed_write_is_made_good(
        log: EventLog, lake: Lake, artifacts: DirectoryStore, settings: Settings, story: Story,
        monkeypatch: pytest.MonkeyPatch) -> None:
    """The outcome of a commit is unknown after an exception: here it had landed in some tables, not in others."""
    whole_story(story)
    append(log, story.told)
    failures = iter(["sink:after_table:turns", "sink:after_data_file", "sink:before_write"])
    failing = [next(failures)]

    def fail(name: str) -> None:
        if failing and name == failing[0]:
            failing[0:1] = [following] if (following := next(failures, "")) else []
            raise OSError(5, "Input/output error")

    monkeypatch.setattr("lake.commit.hit", fail)
    monkeypatch.setattr("lake.writer.hit", fail)
    drain(log, lake, artifacts, settings)
    assert not failing
    assert sorted(rows(lake, "select id from events")) == sorted((event.id,) for _, event in story.told)
    assert lake.verify() == []


def test_a_half_flush_that_a_longer_one_made_good_leaves_a_whole_lake(
        lake: Lake, artifacts: DirectoryStore, settings: Settings, story: Story,
        monkeypatch: pytest.MonkeyPatch) -> None:
    """All of the longer one's dead letters are there already, so their table does not move."""
    story.start("e")
    story.told[-1] = ("trajectories", story.told[-1][1]._replace(data=b"\xc1"))
    half = records_of(story.told)
    story.turn("e")
    whole = records_of(story.told)

    def die(name: str) -> None:
        if name == "sink:after_table:dead_letters":
            raise KeyboardInterrupt

    monkeypatch.setattr("lake.commit.hit", die)
    with pytest.raises(KeyboardInterrupt):
        pour(lake, artifacts, half)
    monkeypatch.undo()
    pour(open_lake(settings, artifacts), artifacts, whole)
    again = open_lake(settings, artifacts)
    again.bind(IDENTITY)
    assert rows(again, "select count(*) from dead_letters") == [(1,)]
    assert again.verify() == []


def test_heavy_turns_are_flushed_before_they_pile_up(
        log: EventLog, lake: Lake, artifacts: DirectoryStore, settings: Settings, story: Story,
        monkeypatch: pytest.MonkeyPatch) -> None:
    story.start("e")
    for number in range(29):
        story.turn("e", number)
    append(log, story.told)
    monkeypatch.setattr("consumers.sink._POLL_RECORDS", 5)
    monkeypatch.setattr("consumers.sink._FLUSH_BYTES", 5 * len(story.told[-1][1].data))
    patient = msgspec.structs.replace(settings, sink_flush_interval_s=3600.0)
    assert drain(log, lake, artifacts, patient).flushes >= 5
    assert rows(lake, "select count(*) from turns") == [(29,)]


def test_a_sink_that_lost_a_race_goes_on_from_where_the_winner_is(
        log: EventLog, lake: Lake, artifacts: DirectoryStore, settings: Settings, story: Story,
        monkeypatch: pytest.MonkeyPatch) -> None:
    whole_story(story)
    append(log, story.told)
    winner = open_lake(settings, artifacts)
    winner.bind(log.identity)
    first = log.subscribe(TOPICS).poll(5.0, 20)
    race = iter(["sink:before_write"])

    def lose(name: str) -> None:
        if name == next(race, None):
            winner.commit(*flush_of(Folding(artifacts), first))

    monkeypatch.setattr("lake.commit.hit", lose)
    sink = drain(log, lake, artifacts, settings)
    assert sink.conflicts == 1
    assert sorted(rows(lake, "select id from events")) == sorted((event.id,) for _, event in story.told)
    assert lake.verify() == []


def test_a_sink_gives_up_on_a_lake_that_cannot_be_written(
        log: EventLog, lake: Lake, artifacts: DirectoryStore, settings: Settings, story: Story,
        monkeypatch: pytest.MonkeyPatch) -> None:
    whole_story(story)
    append(log, story.told)

    def fail(name: str) -> None:
        if name == "sink:before_write":
            raise LakeError("commit failed", hint="is the disk full?")

    monkeypatch.setattr("lake.commit.hit", fail)
    monkeypatch.setattr("consumers.sink._MAX_FAILURES", 3)
    with pytest.raises(LakeError, match="commit failed"):
        drain(log, lake, artifacts, settings)


def test_the_lake_of_another_log_is_refused(
        log: EventLog, lake: Lake, artifacts: DirectoryStore, settings: Settings, tmp_path: Any) -> None:
    lake.bind("another")
    with pytest.raises(LakeError, match="copy of another log"):
        drain(log, lake, artifacts, settings)


class LateSeeks:
    """A log whose subscriptions deliver some records again and skip some at first, as a client may that fetched them
    before a seek took effect."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self.identity = log.identity

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def subscribe(self, *arguments: Any, **options: Any) -> Any:
        return LateSubscription(self._log.subscribe(*arguments, **options))


class LateSubscription:
    def __init__(self, inner: Subscription) -> None:
        self._inner = inner
        self._polls = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def poll(self, timeout_s: float = 0.1, max_records: int = 5000) -> list[Record]:
        records = self._inner.poll(timeout_s, 9)
        self._polls += 1
        if self._polls == 3:
            return records[2:]
        return records[:4] + records if self._polls % 2 else records


def test_offsets_decide_not_the_order_of_delivery(
        log: EventLog, lake: Lake, artifacts: DirectoryStore, settings: Settings, story: Story) -> None:
    whole_story(story)
    append(log, story.told)
    drain(LateSeeks(log), lake, artifacts, settings)  # type: ignore[arg-type]
    assert sorted(rows(lake, "select id from events")) == sorted((event.id,) for _, event in story.told)
    assert lake.verify() == []


def test_a_sink_that_is_stopped_leaves_a_flush_that_fails_to_the_next_one(
        log: EventLog, lake: Lake, artifacts: DirectoryStore, settings: Settings, story: Story) -> None:
    whole_story(story)
    append(log, story.told)
    stop = threading.Event()

    class Ahead(Lake):
        def commit(self, *_: Any) -> None:
            raise CommitConflictError("another sink wrote")

    class Stopped(Sink):
        def _turn(self, subscription: Subscription) -> bool:
            done = super()._turn(subscription)
            if self._pending():
                stop.set()
            return done

    slow = msgspec.structs.replace(settings, sink_flush_interval_s=600.0)
    ahead = open_lake(settings, artifacts)
    ahead.__class__ = Ahead
    Stopped(log, ahead, artifacts, slow).run(stop)
    assert stop.is_set() and lake.positions() == {}
    drain(log, lake, artifacts, settings)
    assert sorted(rows(lake, "select id from events")) == sorted((event.id,) for _, event in story.told)
