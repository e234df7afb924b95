"""The log on Apache Kafka: many machines, any number of producers and readers.

Kafka has no unique ids: an event that is appended twice stands there twice, and the readers resolve it (admission for
`trajectories`, first-id-wins elsewhere). Times are kept in milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path

from schemas.envelope import Event, Position
from schemas.errors import UnavailableError

try:
    from eventlog.kafka_cluster import Cluster
    from eventlog.kafka_consumer import KafkaSubscription
    from eventlog.kafka_producer import Appender
except ModuleNotFoundError as absent:
    raise UnavailableError("the Kafka log needs a package that is not installed", where=f"import {absent.name}",
                           hint="pip install 'headrace[kafka]'") from None
from eventlog.checks import check_events, check_topic
from eventlog.log import Start, TopicPartition

Callback = Callable[[frozenset[TopicPartition]], None]
DELIVERY_S = 60.0
"""How long an append may wait for a broker that is away before its Future fails."""
_ABORT_S = 15.0
"""Brokers end a transaction that was left open after a minute, give or take this."""


class KafkaLog:
    """An EventLog. Partition counts are the topics' own; `partitions` counts only where topics are created."""

    def __init__(self, setting: str, home: Path, partitions: int, delivery_s: float = DELIVERY_S,
                 lake: str = "") -> None:
        self._subscriptions: list[KafkaSubscription] = []
        self._patience_s = delivery_s + _ABORT_S
        self._cluster = Cluster(setting, home, partitions, lake)
        try:
            self._appender = Appender(self._cluster, delivery_s)
        except BaseException:
            self._cluster.close()
            raise
        self.identity: str = self._cluster.identity

    def append(self, topic: str, events: Sequence[Event]) -> Future[list[Position]]:
        size = check_events(topic, events)
        if not events:
            done: Future[list[Position]] = Future()
            done.set_result([])
            return done
        return self._appender.append(topic, self._cluster.partitions[topic], tuple(events), size)

    def subscribe(self, topics: Sequence[str], group: str | None = None, start: Start = "earliest", *,
                  member: str | None = None, on_assign: Callback | None = None,
                  on_revoke: Callback | None = None) -> KafkaSubscription:
        for topic in topics:
            check_topic(topic)
        subscription = KafkaSubscription(self._cluster, list(topics), group, start, member, on_assign, on_revoke)
        self._subscriptions = [one for one in self._subscriptions if not one.closed] + [subscription]
        return subscription

    def partitions(self, topic: str) -> int:
        check_topic(topic)
        return self._cluster.partitions[topic]

    def ends(self, topics: Sequence[str]) -> dict[TopicPartition, int]:
        for topic in topics:
            check_topic(topic)
        return self._cluster.ends(list(topics), self._patience_s)

    def close(self) -> None:
        """Wait for what was appended; readers that are still open are closed too."""
        for subscription in self._subscriptions:
            subscription.close()
        self._appender.close()
        self._cluster.close()
