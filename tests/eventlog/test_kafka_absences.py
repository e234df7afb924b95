"""A Kafka that goes away, comes back or becomes another one, under writers and readers that go on: real brokers."""

from __future__ import annotations

import gc
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

import kafka
import kafka.future
import pytest

from eventlog import open_log
from eventlog.kafka import KafkaLog
from eventlog.kafka_consumer import KafkaSubscription
from eventlog.kafka_producer import BUFFER_BYTES
from eventlog.log import Subscription
from schemas.envelope import Event, Position, Record
from schemas.errors import LogRecreatedError, UnavailableError
from schemas.settings import Settings
from schemas.topics import TASKS, TRAJECTORIES
from tests.eventlog.conftest import forget_topics, start_broker
from tests.eventlog.tools import TIMEOUT_S, event, poll_until, read

# The client leaves the sockets of refused connections to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
SUBJECTS = 8


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator:
    """A broker that a test may stop, and leaves running."""
    running = start_broker(tmp_path_factory.mktemp("own-broker"))
    yield running
    running.kill()


@pytest.fixture
def log(own_broker, tmp_path: Path) -> Iterator[KafkaLog]:
    forget_topics(own_broker.address)
    opened = KafkaLog(own_broker.log_setting, tmp_path / "home", 4, delivery_s=4)
    yield opened
    opened.close()
    gc.collect()


def watched(log: KafkaLog, group: str | None = None) -> KafkaSubscription:
    """A reader that looks around soon when nothing comes."""
    return KafkaSubscription(log._cluster, [TASKS], group, "earliest", None, None, None, watch_s=0.2)


# -- another log behind the same address -----------------------------------------------------------------------------

@pytest.mark.parametrize("group", [None, "g"])
def test_topics_made_anew_under_open_readers_and_writers_are_told(log: KafkaLog, own_broker, tmp_path: Path,
                                                                  group: str | None) -> None:
    log.append(TASKS, [event("a", 0)]).result(30)
    reader = watched(log, group)
    read(reader, 1)
    forget_topics(own_broker.address)
    other = open_log(Settings(home=str(tmp_path / "other"), log=own_broker.log_setting))
    other.append(TASKS, [event("b", number) for number in range(3)]).result(30)
    with pytest.raises(LogRecreatedError, match="recreated"):
        found = poll_until(reader, lambda records: False)
        assert not found
    with pytest.raises(LogRecreatedError, match="recreated"):
        log.append(TASKS, [event("a", 1)]).result(30)
    reader.close()
    other.close()


def test_a_cluster_made_anew_under_open_readers_and_writers_is_told(log: KafkaLog, own_broker, tmp_path: Path) -> None:
    log.append(TASKS, [event("a", 0)]).result(30)
    reader = watched(log)
    read(reader, 1)
    own_broker.kill()
    shutil.rmtree(own_broker.folder)
    own_broker.start()
    open_log(Settings(home=str(tmp_path / "other"), log=own_broker.log_setting)).close()
    with pytest.raises(LogRecreatedError, match="cluster"):
        poll_until(reader, lambda records: False)
    with pytest.raises(LogRecreatedError):
        log.append(TASKS, [event("a", 1)]).result(30)
    reader.close()


# -- a broker that is away -------------------------------------------------------------------------------------------

def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_memory_is_bounded_while_a_broker_is_away_and_callers_append_on(log: KafkaLog, own_broker) -> None:
    """Three times what may be buffered: each append is held, then told, by its Future or at once."""
    log.append(TRAJECTORIES, [event("a", 0)]).result(30)
    gc.collect()
    own_broker.pause()
    before, highest, payload = resident_bytes(), 0, os.urandom(8 << 20)
    futures: list[Future[list[Position]]] = []
    told, count = 0, BUFFER_BYTES // len(payload) + 2
    try:
        for number in range(count):
            try:
                futures.append(log.append(TRAJECTORIES, [event("a", number, payload + bytes(1))]))
            except UnavailableError:
                told += 1
            highest = max(highest, resident_bytes() - before)
        for future in futures:
            with pytest.raises(UnavailableError, match="does not answer"):
                future.result(30)
    finally:
        own_broker.pause(False)
    assert told + len(futures) == count and highest < 3 * BUFFER_BYTES, (told, len(futures), highest)


def test_appends_that_the_client_forgets_are_told_in_time(own_broker, tmp_path: Path,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    """While it waits for a new producer id the client looks at no deadline; here it never does."""
    log = KafkaLog(own_broker.log_setting, tmp_path / "home", 4, delivery_s=1)
    held: list[kafka.future.Future] = []

    def forgotten(*_: object, **__: object) -> kafka.future.Future:
        held.append(kafka.future.Future())
        return held[-1]

    monkeypatch.setattr(log._appender._producer, "send", forgotten)
    late = log.append(TASKS, [event("a", 0)])
    with pytest.raises(UnavailableError, match="does not answer"):
        late.result(12)
    assert log._appender._events == 1
    held[0].failure(kafka.errors.KafkaTimeoutError())
    assert log._appender._events == 0
    unanswered = log.append(TASKS, [event("a", 1)])
    log.close()
    with pytest.raises(UnavailableError, match=r"closed before|does not answer"):
        unanswered.result(0)


def gives_up_its_id(client: kafka.KafkaProducer) -> None:
    """As the client does when a batch that it had sent expires before an answer: during an absence."""
    client._transaction_manager.reset_producer_id()


def fails_for_good(client: kafka.KafkaProducer) -> None:
    """As the client does when a request for an id fails."""
    client._transaction_manager.transition_to_fatal_error(kafka.errors.KafkaError("no id"))


@pytest.mark.parametrize("loses", [gives_up_its_id, fails_for_good])
def test_a_client_that_would_send_nothing_any_more_is_replaced(
        log: KafkaLog, own_broker, loses: Callable[[kafka.KafkaProducer], None]) -> None:
    first = log.append(TASKS, [event("a", 0)]).result(30)
    lost = log._appender._producer
    own_broker.pause()
    try:
        held = log.append(TASKS, [event("a", 1)])
        loses(lost)
        with pytest.raises(UnavailableError, match="does not answer"):
            log.append(TASKS, [event("a", 2)]).result(30)
    finally:
        own_broker.pause(False)
    again = poll_append(log, event("a", 2))
    assert log._appender._producer is not lost and lost._closed and again[0].offset > first[0].offset
    with pytest.raises(UnavailableError, match=r"does not answer|gave up"):
        held.result(30)


def poll_append(log: KafkaLog, one: Event) -> list[Position]:
    deadline = time.monotonic() + 2 * TIMEOUT_S
    while True:
        try:
            return log.append(TASKS, [one]).result(30)
        except UnavailableError as wrong:
            assert time.monotonic() < deadline, wrong


@pytest.mark.parametrize("lost", ["killed", "paused"])
def test_closing_ends_while_the_broker_is_gone_and_burns_nothing(own_broker, tmp_path: Path, lost: str) -> None:
    forget_topics(own_broker.address)
    log = KafkaLog(own_broker.log_setting, tmp_path / "home", 4, delivery_s=3)
    reader = log.subscribe([TASKS], "g", member="m")
    log.append(TASKS, [event("a", 0)]).result(30)
    read(reader, 1)
    own_broker.kill() if lost == "killed" else own_broker.pause()
    try:
        futures = [log.append(TASKS, [event("a", number)]) for number in range(1, 4)]
        begun, worked, threads = time.monotonic(), time.process_time(), threading.active_count()
        log.close()
        took = time.monotonic() - begun
        assert took < 30 and time.process_time() - worked < 0.3 * took + 0.5
        for future in futures:
            with pytest.raises(UnavailableError):
                future.result(0)
        assert threading.active_count() <= threads
    finally:
        own_broker.start() if lost == "killed" else own_broker.pause(False)
        gc.collect()


class Stream(threading.Thread):
    """Appends without pause, a few events of each subject at a time, until it is ended; keeps what was acknowledged."""

    def __init__(self, log: KafkaLog) -> None:
        super().__init__()
        self._log, self._over = log, threading.Event()
        self.acknowledged: dict[tuple[str, int], Position] = {}
        self.failed: list[BaseException] = []

    def run(self) -> None:
        number = 0
        while not self._over.is_set():
            events = [event(f"s-{subject}", number + part) for subject in range(SUBJECTS) for part in range(3)]
            number += 3
            try:
                positions = self._log.append(TRAJECTORIES, events).result(90)
            except UnavailableError as wrong:
                self.failed.append(wrong)
                continue
            self.acknowledged |= {(one.subject, one.sequence): at for one, at in zip(events, positions, strict=True)}

    def end(self) -> None:
        self._over.set()
        self.join()

    def goes_on(self, reader: Subscription, found: list) -> None:
        """Until something new was acknowledged and read."""
        acknowledged, many = len(self.acknowledged), len(found)
        deadline = time.monotonic() + 2 * TIMEOUT_S
        while len(self.acknowledged) <= acknowledged or len(found) <= many:
            assert time.monotonic() < deadline, (self.failed, len(self.acknowledged), len(found))
            found += reader.poll(0.2)


def test_a_stream_goes_on_over_brokers_that_die_and_restart(own_broker, tmp_path: Path) -> None:
    """Nothing acknowledged is lost, order is kept; what the client had to send twice is the same event."""
    forget_topics(own_broker.address)
    log = KafkaLog(own_broker.log_setting, tmp_path / "home", 4)
    reader = log.subscribe([TRAJECTORIES], "g", member="m")
    stream, found = Stream(log), []
    stream.start()
    stream.goes_on(reader, found)
    for end in (own_broker.kill, own_broker.stop, own_broker.kill):
        end()
        found += reader.poll(0.2)
        own_broker.start()
        stream.goes_on(reader, found)
    stream.end()
    wanted = dict(stream.acknowledged)
    found += poll_until(reader, lambda more: wanted.keys() <= {(one.event.subject, one.event.sequence)
                                                              for one in (*found, *more)})
    found += reader.poll(0.5)
    places: dict[tuple[str, int], list[Position]] = {}
    first: dict[str, Record] = {}
    for one in found:
        places.setdefault((one.event.subject, one.event.sequence), []).append(one.position)
        assert first.setdefault(one.event.id, one).event == one.event
    assert len({one.position for one in found}) == len(found) and reader.recreated == 0
    assert len(first) == len(places) and all(at in places[key] for key, at in wanted.items())
    by_subject: dict[str, list[int]] = {}
    for one in first.values():
        by_subject.setdefault(one.event.subject, []).append(one.event.sequence)
    assert all(sequences == sorted(sequences) for sequences in by_subject.values())
    assert len(wanted) > 100
    log.close()
    gc.collect()
