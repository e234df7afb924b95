"""Topics that transactional producers of others write to: what was aborted is not there, and readers reach the end."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import kafka
import pytest

from eventlog import open_log
from eventlog.kafka import KafkaLog
from eventlog.log import Subscription
from schemas.envelope import Event, to_headers
from schemas.errors import UnavailableError
from schemas.settings import Settings
from schemas.topics import TASKS
from tests.eventlog.tools import event, poll_until

TRANSACTIONS = 12


def send(producer: kafka.KafkaProducer, one: Event) -> None:
    producer.send(TASKS, one.data, key=one.subject.encode(), headers=to_headers(one), partition=0)


def to_the_end(reader: Subscription, end: int) -> list[int]:
    found = poll_until(reader, lambda _: (TASKS, 0) in reader.assignment() and reader.position((TASKS, 0)) >= end)
    return [record.event.sequence for record in found if record.event is not None]


@pytest.mark.parametrize("group", [None, "g"])
def test_topic_full_of_control_records_is_read_to_its_end(kafka_settings: Settings, broker, group: str | None) -> None:
    log = open_log(kafka_settings)
    committed = []
    with kafka.KafkaProducer(bootstrap_servers=broker.address, transactional_id=f"t-{group}") as producer:
        producer.init_transactions()
        for number in range(TRANSACTIONS):  # The next begins as soon as the last was ended; sends run side by side.
            producer.begin_transaction()
            for part in range(5):
                send(producer, event("a", 10 * number + part))
            producer.flush()  # What was never sent leaves no offset behind.
            if number % 3 == 0:
                producer.commit_transaction()
                committed += [10 * number + part for part in range(5)]
            else:
                producer.abort_transaction()
    log.ends([TASKS])  # Waits for the mark of the last transaction, which the broker writes in its own time.
    end = log.ends([TASKS])[TASKS, 0]
    assert end > 5 * TRANSACTIONS  # Aborted records and the marks of transactions have offsets too.
    reader = log.subscribe([TASKS], group)
    assert to_the_end(reader, end) == committed
    assert reader.position((TASKS, 0)) == end
    later, = log.append(TASKS, [event("a", 999)]).result(30)
    assert later.offset == end and to_the_end(reader, end + 1) == [999]
    reader.seek((TASKS, 0), 0)
    assert to_the_end(reader, end + 1) == [*committed, 999]
    reader.close()
    log.close()


def test_what_is_under_way_is_not_seen_before_it_is_committed(kafka_settings: Settings, broker) -> None:
    log = open_log(kafka_settings)
    with kafka.KafkaProducer(bootstrap_servers=broker.address, transactional_id="open") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        send(producer, event("a", 0))
        producer.flush()
        reader = log.subscribe([TASKS])
        assert reader.poll(0.5) == [] and reader.position((TASKS, 0)) == 0
        producer.commit_transaction()
    assert [record.event.sequence for record in poll_until(reader, lambda found: len(found) > 0)] == [0]
    log.close()


def test_an_open_transaction_is_waited_for_and_then_told(kafka_settings: Settings, broker) -> None:
    log = KafkaLog(kafka_settings.log, Path(kafka_settings.home), 4)
    log.append(TASKS, [event("a", 0)]).result(30)
    with kafka.KafkaProducer(bootstrap_servers=broker.address, transactional_id="hanging") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        send(producer, event("a", 1))
        producer.flush()
        log._patience_s = 0.3
        with pytest.raises(UnavailableError, match="transaction of another writer") as caught:
            log.ends([TASKS])
        assert caught.value.where == "tasks-0" and "offset 1" in caught.value.paragraph()
        log._patience_s = 60.0
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(log.ends, [TASKS])
            later, = log.append(TASKS, [event("a", 2)]).result(30)
            assert not waiting.done()
            producer.abort_transaction()
            end = waiting.result(30)[TASKS, 0]
    reader = log.subscribe([TASKS])
    assert end >= 2 and later.offset == 2 and to_the_end(reader, end) in ([0], [0, 2])
    log.close()
