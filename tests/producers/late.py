"""A real log, one topic of which is read late: its records come only after another reader has polled many times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eventlog.log import EventLog, Subscription, TopicPartition
from schemas.envelope import Record

POLLS = 12
"""Of readers of other topics."""


class Late:
    def __init__(self, inner: EventLog, topic: str) -> None:
        self._inner, self.topic = inner, topic
        self.polls = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def subscribe(self, topics: Sequence[str], *arguments: Any, **options: Any) -> Subscription:
        return _Subscription(self, self._inner.subscribe(topics, *arguments, **options), self.topic in topics)


class _Subscription:
    def __init__(self, log: Late, inner: Subscription, late: bool) -> None:
        self._log, self._inner, self._late = log, inner, late
        self._held: list[Record] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def position(self, partition: TopicPartition) -> int:
        held = [record.position.offset for record in self._held if record.position[:2] == partition]
        return min([*held, self._inner.position(partition)])

    def poll(self, timeout_s: float = 0.1, max_records: int = 5000) -> list[Record]:
        records = self._held + self._inner.poll(timeout_s, max_records)
        self._log.polls += not self._late
        self._held = [record for record in records
                      if record.position.topic == self._log.topic and self._log.polls < POLLS]
        return [record for record in records if record not in self._held]
