"""Appending to Kafka: idempotent, acknowledged by all in-sync replicas, compressed, bounded.

Invariants: a Future is resolved when every record of its append is acknowledged, and in any case soon after the time
that a delivery may take; what the client still holds is bounded, beyond that `append` blocks; a broker that stays away
fails the Futures, it does not grow the memory; a client that no longer sends anything is replaced by the next append.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import kafka
import kafka.errors
from kafka.producer.transaction_manager import TransactionState

from eventlog.kafka_access import HINT
from eventlog.kafka_cluster import MESSAGE_BYTES, Cluster, told_as
from schemas.envelope import Event, Position, to_headers
from schemas.errors import HeadraceError, LogError, LogRecreatedError, UnavailableError
from schemas.topics import TOPICS, partition_for

BUFFER_BYTES, BUFFER_EVENTS = 64 << 20, 50_000
_BATCH_BYTES = 1 << 20
_LINGER_MS = 5
_REQUEST_MS = 15_000
_METADATA_MS = 5_000
_OVERDUE_S = 1.0
"""How much longer than a delivery may take the client is given to say so itself; it may forget to."""
_LOOK_S = 0.5
_START_AGAIN_S = 2.0


class Pending:
    """One append under way. It waits for one record at a time, the last first: when that is acknowledged, most others
    are too, and a callback for each would cost more than the rest of an append."""

    def __init__(self, appender: Appender, topic: str, count: int, size: int) -> None:
        self.future: Future[list[Position]] = Future()
        # An append is never withdrawn: a cancelled waiter must not leave it unknown whether the event was written.
        self.future.set_running_or_notify_cancel()
        self.count, self.size, self.begun = count, size, time.monotonic()
        self._appender, self._topic = appender, topic
        self._positions: list[Position] = []
        self._open: list[Any] = []
        self._failure: Exception | None = None
        self.sent = False

    def refused(self, failure: Exception) -> None:
        """A record that was not even sent."""
        self._failure = self._failure or self._appender.deeper(failure, self._topic)

    def wait_for(self, sent: list[Any]) -> None:
        """Once, with what the client promised for each record that was sent."""
        self._open, self.sent = sent, True
        self._go_on()

    def _go_on(self, _: object = None) -> None:
        """On the client's thread, or on the one that appends; never on two at once, for there is one callback."""
        while self._open:
            one = self._open[-1]
            if not one.is_done:
                one.add_callback(self._go_on)
                one.add_errback(self._go_on)
                return
            self._open.pop()
            if one.exception is not None:
                self.refused(one.exception)
            else:
                at = one.value
                self._positions.append(Position(at.topic, at.partition, at.offset))
        if not self._appender.settle(self):
            return
        if self._failure is not None:
            self.future.set_exception(told_as(self._failure, self._appender.setting))
        else:
            self.future.set_result(self._positions[::-1])


class Appender:
    def __init__(self, cluster: Cluster, delivery_s: float) -> None:
        self.setting = cluster.setting
        self._cluster = cluster
        self.changed = threading.Condition()
        self._delivery_s = delivery_s
        self._pending: dict[Pending, None] = {}
        self._overdue: set[Pending] = set()
        self._bytes = self._events = 0
        self._closed = False
        self._sending, self._over = threading.Lock(), threading.Event()
        self._start_again_at = 0.0
        try:
            self._producer = self._start()
        except kafka.errors.KafkaError as wrong:
            raise told_as(wrong, self.setting) from None
        self._watch = threading.Thread(target=self._tell_overdue, name="kafka-overdue", daemon=True)
        self._watch.start()

    def _start(self) -> kafka.KafkaProducer:
        settings = self._cluster.client | {
            "enable_idempotence": True, "acks": "all", "compression_type": "zstd", "linger_ms": _LINGER_MS,
            "batch_size": _BATCH_BYTES, "max_request_size": MESSAGE_BYTES, "max_block_ms": _METADATA_MS,
            "delivery_timeout_ms": int(self._delivery_s * 1000),
            "request_timeout_ms": min(_REQUEST_MS, int(self._delivery_s * 1000) - _LINGER_MS),
            "reconnect_backoff_max_ms": 1000}
        producer = kafka.KafkaProducer(**settings)
        self._cluster.watch(producer._metadata)
        try:
            for topic in TOPICS:  # So that `append` never has to wait for it.
                producer.partitions_for(topic)
        except kafka.errors.KafkaError:
            producer.close(timeout=0)
            raise
        return producer

    def append(self, topic: str, partitions: int, events: Sequence[Event], size: int) -> Future[list[Position]]:
        self._cluster.refuse_another()
        self._over.wait(max(0.0, self._start_again_at - time.monotonic()))
        with self._sending:
            self._replace_lost()
        self._cluster.refuse_another()
        pending = Pending(self, topic, len(events), size)
        self._admit(pending)
        sent = []
        with self._sending:
            for event in events:
                try:
                    sent.append(self._producer.send(
                        topic, value=event.data, key=event.subject.encode(), headers=to_headers(event),
                        partition=partition_for(event.subject, partitions), timestamp_ms=event.time_us // 1000))
                except (kafka.errors.KafkaError, ValueError) as wrong:
                    pending.refused(self._cluster.explain(wrong))
                    break  # The others would wait as long, one after the other, and nobody else could append.
            pending.wait_for(sent)
        return pending.future

    def _replace_lost(self) -> None:
        """kafka-python 3.0 sends nothing any more after it gave up its producer id, for it believes that it has one and
        never asks for another; nor does it after a request for an id that failed. What it holds will not be sent."""
        state = self._producer._transaction_manager
        if not (state.has_fatal_error()
                or (state._current_state == TransactionState.READY and not state.has_producer_id())):
            return
        if time.monotonic() < self._start_again_at:
            raise UnavailableError("Kafka broker does not answer (another append just asked)", where=self.setting,
                                   hint=HINT)
        lost = self._producer
        try:
            self._producer = self._start()
        except kafka.errors.KafkaError as wrong:
            self._start_again_at = time.monotonic() + _START_AGAIN_S
            raise told_as(wrong, self.setting) from None
        with self.changed:
            sent = [one for one in self._pending if one.sent]
        self._give_up_on(sent)
        self._end_client(lost, 0)

    def _end_client(self, producer: kafka.KafkaProducer, patience_s: float) -> None:
        """Its own way to close gives up half-way when a record is held: of those we have told already."""
        try:
            producer.close(timeout=patience_s)
        except kafka.errors.KafkaError:
            producer._sender.force_close()
            producer._sender.join(patience_s)
            producer._closed = True

    def settle(self, pending: Pending) -> bool:
        """The client is done with it. Returns whether its Future is still to be resolved."""
        with self.changed:
            waited = pending in self._pending
            self._pending.pop(pending, None)
            self._overdue.discard(pending)
            self._bytes -= pending.size
            self._events -= pending.count
            self.changed.notify_all()
        return waited

    def _give_up_on(self, late: list[Pending]) -> None:
        """Tell those who wait. What the client still holds counts as held until it lets go."""
        with self.changed:
            late = [one for one in late if self._pending.pop(one, one) is None]
            self._overdue.update(late)
        for pending in late:
            pending.future.set_exception(UnavailableError(
                "Kafka broker does not answer (no acknowledgement)", where=self.setting,
                value=f"after {time.monotonic() - pending.begun:.0f} s", hint=HINT))

    def _tell_overdue(self) -> None:
        """Fail what the client should have failed by now."""
        while not self._over.wait(_LOOK_S):
            latest = time.monotonic() - self._delivery_s - _OVERDUE_S
            with self.changed:
                late = [one for one in self._pending if one.begun < latest]
            self._give_up_on(late)

    def deeper(self, failure: Exception, topic: str) -> Exception:
        """On the client's thread, so without asking anyone: a topic that the client no longer knows is gone."""
        if not isinstance(failure, HeadraceError) and self._producer._metadata.partitions_for_topic(topic) is None:
            return LogRecreatedError(f"topic `{topic}` was deleted", where=self.setting,
                                     hint="open the log again; it says what became of the cluster")
        return failure

    def close(self) -> None:
        """Wait for what is under way, as long as a delivery may take, then stop."""
        with self.changed:
            self._closed = True
            self.changed.wait_for(lambda: not self._pending, self._delivery_s + 1)
            abandoned = list(self._pending)
            self._pending.clear()
            held = bool(abandoned or self._overdue)
            self.changed.notify_all()
        self._over.set()
        self._watch.join()
        self._end_client(self._producer, 0 if held else 5)
        for pending in abandoned:
            pending.future.set_exception(UnavailableError("log was closed before the broker acknowledged",
                                                          where=self.setting))

    def _admit(self, pending: Pending) -> None:
        def fits() -> bool:
            return not self._pending or (self._bytes + pending.size <= BUFFER_BYTES
                                         and self._events + pending.count <= BUFFER_EVENTS)

        with self.changed:
            if not self.changed.wait_for(lambda: self._closed or fits(), self._delivery_s + 1):
                raise UnavailableError("Kafka does not keep up", where=self.setting,
                                       value=f"{self._events} events, {self._bytes} bytes are not acknowledged",
                                       hint="check the broker")
            if self._closed:
                raise LogError("log is closed", where=self.setting)
            self._pending[pending] = None
            self._bytes += pending.size
            self._events += pending.count
