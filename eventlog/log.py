"""The EventLog contract. Backends: `eventlog.sqlite` (embedded default) and `eventlog.kafka`.

Invariants: nothing is acknowledged before it is durable; records of one partition are read in the order of their
offsets; an event's partition is `schemas.topics.partition_for(subject, n)`; the log never judges events (admission
is the readers'). Raises LogError, or UnavailableError where the backend cannot be reached.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Literal, Protocol

from schemas.envelope import Event, Position, Record

TopicPartition = tuple[str, int]
Start = Literal["earliest", "latest"] | Mapping[TopicPartition, int]


class Subscription(Protocol):
    """One reader. With a group, partitions are shared among its members; without, it reads all. Not thread-safe."""

    def poll(self, timeout_s: float = 0.1, max_records: int = 5000) -> list[Record]:
        """The next records, [] when none came within the time-out. Handles rebalances: callbacks run in here."""
        ...

    def assignment(self) -> frozenset[TopicPartition]: ...

    def position(self, partition: TopicPartition) -> int:
        """Offset of the next record that poll would return."""
        ...

    def seek(self, partition: TopicPartition, offset: int) -> None: ...

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Remember, without waiting, the next offset to read for the group. No authority: the lake has that."""
        ...

    def close(self) -> None: ...


class EventLog(Protocol):
    identity: str
    """Id of the cluster or file, for life: part of every application transaction of the lake."""

    def append(self, topic: str, events: Sequence[Event]) -> Future[list[Position]]:
        """Done when durable. Order within one call and between calls of one thread is kept per partition.

        What is not durable yet is bounded: beyond that the call holds its caller, up to a minute, then raises. An event
        loop calls it in a thread."""
        ...

    def subscribe(self, topics: Sequence[str], group: str | None = None, start: Start = "earliest", *,
                  member: str | None = None,
                  on_assign: Callable[[frozenset[TopicPartition]], None] | None = None,
                  on_revoke: Callable[[frozenset[TopicPartition]], None] | None = None) -> Subscription:
        """`start` is used where the group has no committed offset. `member` is the static member id.
        On assign a reader may seek; on revoke it must drop what it buffered of these partitions."""
        ...

    def partitions(self, topic: str) -> int: ...

    def ends(self, topics: Sequence[str]) -> dict[TopicPartition, int]:
        """Next offset of every partition: everything before it is durable now."""
        ...

    def close(self) -> None: ...
