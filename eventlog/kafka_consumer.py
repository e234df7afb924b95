"""A subscription to Kafka: committed records only, positions set by us, rebalances told in `poll`, stalls noticed.

The client tells a rebalance on its own network thread, where nothing may block. There it is only noted, with the new
partitions paused; `poll` then works out what was lost and gained, runs the callbacks in the reader's thread, sets
positions and lets the partitions flow. A partition that stays keeps its position.

Watchdog: a consumer that is assigned partitions, has lag and does not move is made anew and counted in `recreated`.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import kafka
import kafka.errors
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.structs import OffsetAndMetadata

from eventlog.kafka_cluster import MESSAGE_BYTES, Cluster
from eventlog.log import Start, TopicPartition
from schemas.envelope import RawRecord, Record, from_wire, new_position, new_record
from schemas.errors import HeadraceError, LogError, LogRecreatedError, SchemaError, UnavailableError

Callback = Callable[[frozenset[TopicPartition]], None]
SESSION_S = 6.0
"""The shortest that brokers allow by default: how long the partitions of a dead member stay unread."""
MAX_POLL_INTERVAL_S = 300.0
WATCH_S = 10.0
AWAY_S = 30.0
"""A broker that does not answer for so long is an error of `poll`; shorter absences are ridden out."""
_KNOWN_S = 10.0
"""A broker that is just up may refuse to say which it is: a log that lost its end is mostly another log."""
_SLICE_S = 0.1
_ASK_MS = 3000
_SILENT_S = 0.25
_COMMIT_S = 1.0
"""How long a close waits for the last commit; what is lost is read again."""


class _Rebalances(ConsumerRebalanceListener):  # type: ignore[misc]
    """Notes what the client says, on its thread: ("revoked" | "lost" | "assigned", partitions)."""

    def __init__(self, consumer: Any) -> None:
        self.notes: deque[tuple[str, frozenset[TopicPartition]]] = deque()
        self._consumer = consumer

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        self.notes.append(("revoked", _ours(revoked)))

    def on_partitions_lost(self, lost: Iterable[Any]) -> None:
        self.notes.append(("lost", _ours(lost)))

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        for place in assigned:  # They wait at a position that is no one's until `poll` has placed them.
            self._consumer.seek(place, 0)
        self._consumer.pause(*assigned)
        self.notes.append(("assigned", _ours(assigned)))


class KafkaSubscription:
    def __init__(self, cluster: Cluster, topics: list[str], group: str | None, start: Start, member: str | None,
                 on_assign: Callback | None, on_revoke: Callback | None, watch_s: float = WATCH_S) -> None:
        self._cluster, self._topics, self._group, self._start, self._member = cluster, topics, group, start, member
        self._on_assign, self._on_revoke, self._watch_s = on_assign, on_revoke, watch_s
        self._positions: dict[TopicPartition, int] = {}
        self._joined: frozenset[TopicPartition] = frozenset()
        self.recreated = 0
        self._silent = 0.0
        self.closed = False
        self._looked = self._heard = time.monotonic()
        self._stuck: dict[TopicPartition, int] = {}
        self._committing: Any = None
        self._begin = _begin(start)
        self._listener, self._consumer = self._connect()
        if group is None:
            everything = frozenset((topic, part) for topic in topics for part in range(cluster.partitions[topic]))
            self._consumer.assign([kafka.TopicPartition(*partition) for partition in everything])
            self._gain(everything)

    def poll(self, timeout_s: float = 0.1, max_records: int = 5000) -> list[Record]:
        deadline = time.monotonic() + timeout_s
        try:
            while True:
                self._finish_join()
                left = max(0.0, deadline - time.monotonic())
                found = self._consumer.poll(timeout_ms=int(1000 * min(left, _SLICE_S)), max_records=max_records)
                self._cluster.refuse_another()
                self._refuse_fenced()
                self._follow()
                records = [record for place, messages in found.items()
                           if (place.topic, place.partition) in self._positions
                           for record in self._records(messages)]
                self._pass_what_is_no_record()
                if records:
                    self._looked = self._heard = time.monotonic()
                    self._stuck = {}
                    return records
                self._watch()
                if time.monotonic() >= deadline:
                    return []
        except kafka.errors.KafkaError as wrong:
            raise self._told(wrong) from None

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._positions)

    def position(self, partition: TopicPartition) -> int:
        self._must_have(partition)
        return self._positions[partition]

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._must_have(partition)
        if offset < 0:
            raise LogError("offset is negative", where=f"{partition[0]}-{partition[1]}", value=offset)
        self._positions[partition] = offset
        if partition in self._joined:
            self._consumer.seek(kafka.TopicPartition(*partition), offset)

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        if self._group is None:
            raise LogError("only a group remembers offsets", hint="subscribe with a group")
        mine = {kafka.TopicPartition(*partition): OffsetAndMetadata(offset, "", -1)
                for partition, offset in offsets.items() if partition in self._joined}
        if mine:
            try:
                self._committing = self._consumer.commit_async(mine, callback=_ignore)
            except kafka.errors.KafkaError as wrong:
                raise self._told(wrong) from None

    def close(self) -> None:
        """Leave the group at once, a static member too: others take over without waiting for its session to end, and
        go on where the last commit says."""
        if self.closed:
            return
        self.closed = True
        self._finish_commit()
        was = self._consumer.group_metadata()
        self._shut()
        if self._member is not None and was.member_id:
            # With the member id, so that a process that took this name over is not thrown out in our place.
            gone = [kafka.admin.MemberToRemove(member_id=was.member_id, group_instance_id=self._member)]
            with contextlib.suppress(kafka.errors.KafkaError, RuntimeError):  # The session runs out by itself.
                self._cluster.admin.remove_group_members(self._cluster.group_id(self._group or ""), gone)

    def _finish_commit(self) -> None:
        if self._committing is not None:
            done = threading.Event()
            self._committing.add_both(lambda _: done.set())
            done.wait(_COMMIT_S)

    def _connect(self) -> tuple[_Rebalances, Any]:
        settings = self._cluster.client | {
            "enable_auto_commit": False, "auto_offset_reset": "none", "isolation_level": "read_committed",
            "max_partition_fetch_bytes": 8 << 20, "fetch_max_bytes": MESSAGE_BYTES, "reconnect_backoff_max_ms": 1000}
        if self._group is not None:
            settings |= {
                "group_id": self._cluster.group_id(self._group), "session_timeout_ms": int(SESSION_S * 1000),
                "heartbeat_interval_ms": int(SESSION_S * 250), "max_poll_interval_ms": int(MAX_POLL_INTERVAL_S * 1000),
                "partition_assignment_strategy": (RangePartitionAssignor,), "group_instance_id": self._member}
        try:
            consumer = kafka.KafkaConsumer(**settings)
            self._cluster.watch(consumer._cluster)
            listener = _Rebalances(consumer)
            if self._group is not None:
                consumer.subscribe(self._topics, listener=listener)
                for topic in self._topics:  # Known before we join: else the first assignment would be empty.
                    consumer.partitions_for_topic(topic)
        except kafka.errors.KafkaError as wrong:
            raise self._told(wrong) from None
        return listener, consumer

    def _shut(self) -> None:
        with contextlib.suppress(kafka.errors.KafkaError, RuntimeError):  # It is given up anyway.
            self._consumer.close(autocommit=False, timeout_ms=_ASK_MS)

    def _must_have(self, partition: TopicPartition) -> None:
        if partition not in self._positions:
            raise LogError("partition is not assigned to this reader", value=f"{partition[0]}-{partition[1]}")

    def _follow(self) -> None:
        """Bring our view to what the client noted, running the callbacks."""
        if not self._listener.notes:
            return
        kept = self.assignment()
        now: frozenset[TopicPartition] = frozenset()
        while self._listener.notes:
            kind, partitions = self._listener.notes.popleft()
            if kind == "lost":
                kept, now = kept - partitions, frozenset()
            elif kind == "assigned":
                kept, now = kept & partitions, partitions
        if kind == "revoked":
            self._joined = frozenset()
            return  # In the middle of a rebalance: nobody else has our partitions yet.
        lost = self.assignment() - kept
        for partition in lost:
            del self._positions[partition]
        if lost and self._on_revoke:
            self._on_revoke(lost)
        self._joined = now
        for partition in kept:
            self._consumer.seek(kafka.TopicPartition(*partition), self._positions[partition])
        if self._joined - kept:
            self._gain(self._joined - kept)
        if self._joined:
            self._consumer.resume(*(kafka.TopicPartition(*partition) for partition in self._joined))

    def _gain(self, partitions: frozenset[TopicPartition]) -> None:
        """Start to read partitions: where the group was, else at `start`."""
        if self._group is None:
            self._joined = partitions
        committed = {partition: self._consumer.committed(kafka.TopicPartition(*partition), timeout_ms=_ASK_MS)
                     for partition in partitions} if self._group is not None else {}
        fresh = [kafka.TopicPartition(*partition) for partition in partitions if committed.get(partition) is None]
        if isinstance(self._begin, str) and fresh:
            ask = self._consumer.beginning_offsets if self._begin == "earliest" else self._consumer.end_offsets
            start = {(place.topic, place.partition): offset for place, offset in ask(fresh).items()}
        else:
            start = dict(self._begin) if not isinstance(self._begin, str) else {}
        for partition in partitions:
            offset = committed.get(partition)
            self._positions[partition] = start.get(partition, 0) if offset is None else offset
            self._consumer.seek(kafka.TopicPartition(*partition), self._positions[partition])
        if self._on_assign:
            self._on_assign(partitions)

    def _records(self, messages: list[Any]) -> list[Record]:
        """Of one partition. Written for speed: a long log is read here, event by event."""
        records = []
        for topic, partition, _, offset, timestamp_ms, _, key, value, headers, *_ in messages:
            position = new_position((topic, partition, offset))
            time_us = timestamp_ms * 1000
            try:
                records.append(new_record((position, from_wire(key, value, headers, time_us), None)))
            except SchemaError as wrong:
                kept = tuple((name, held) for name, held in headers if held is not None)
                records.append(Record(position, None, RawRecord(key or b"", value or b"", kept, time_us, str(wrong))))
        if records:
            topic, partition, offset = records[-1].position
            self._positions[topic, partition] = offset + 1
        return records

    def _pass_what_is_no_record(self) -> None:
        """Marks of transactions and what was aborted have offsets too: the client steps over them without a word."""
        for partition in () if self._listener.notes else self._joined:
            state = self._consumer._subscription.assignment.get(kafka.TopicPartition(*partition))
            if state is not None and state.has_valid_position and partition in self._positions:
                self._positions[partition] = max(self._positions[partition], state.position.offset)

    def _finish_join(self) -> None:
        """A join that outlives a poll, begun for new metadata, is never completed by the client unless asked again."""
        coordinator = self._consumer._coordinator
        if self._group is not None and coordinator.rejoining and not coordinator.rejoin_needed:
            coordinator.request_rejoin()

    def _refuse_fenced(self) -> None:
        """A static member whose name another process took: the client stops its heartbeat and reads on in silence."""
        coordinator = self._consumer._coordinator
        if self._member is None or coordinator._heartbeat_enabled or not coordinator.stable():
            self._silent = 0.0
        elif not self._silent:
            self._silent = time.monotonic()
        elif time.monotonic() - self._silent > _SILENT_S:
            raise kafka.errors.FencedInstanceIdError(self._member)

    def _watch(self) -> None:
        """When nothing comes: is there nothing, is the broker away, or is the consumer stuck?"""
        now = time.monotonic()
        if now - self._looked < self._watch_s or not self._joined:
            return
        self._looked = now
        places = [kafka.TopicPartition(*partition) for partition in self._joined]
        try:
            ends = self._consumer.end_offsets(places, timeout_ms=_ASK_MS)
            self._heard = now
        except kafka.errors.KafkaError as wrong:
            reason = self._cluster.explain(wrong)
            if isinstance(reason, LogRecreatedError):
                raise reason from None
            if now - self._heard > AWAY_S:
                raise UnavailableError(f"Kafka broker has not answered for {now - self._heard:.0f} s "
                                       f"({type(wrong).__name__})", where=self._cluster.setting,
                                       hint="check the broker; reading goes on when it is back") from None
            return
        stuck = {}
        for place, end in ends.items():
            at = self._consumer.position(place, timeout_ms=_ASK_MS)
            if at is not None and at < end:
                stuck[place.topic, place.partition] = at
        if any(self._stuck.get(partition) == at for partition, at in stuck.items()):
            self._recreate()
            stuck = {}
        self._stuck = stuck

    def _recreate(self) -> None:
        self._cluster.check_same()
        self.recreated += 1
        self._shut()
        self._joined = frozenset()
        self._listener, self._consumer = self._connect()
        if self._group is None:
            self._joined = self.assignment()
            self._consumer.assign([kafka.TopicPartition(*partition) for partition in self._joined])
            for partition, offset in self._positions.items():
                self._consumer.seek(kafka.TopicPartition(*partition), offset)

    def _told(self, wrong: Exception) -> HeadraceError:
        match wrong:
            case kafka.errors.FencedInstanceIdError():
                return LogError("another process took over this member of the group", where=f"group {self._group}",
                                value=self._member, hint="a static member id belongs to one process at a time")
            case kafka.errors.OffsetOutOfRangeError() | kafka.errors.LogTruncationError():
                if isinstance(reason := self._cluster.explain(wrong, _KNOWN_S), LogRecreatedError):
                    return reason
                return LogError("position lies outside of the log", where=self._cluster.setting, value=str(wrong)[:200],
                                hint="the log was trimmed or lost its end: it is not what the reader remembers of it; "
                                     "`headrace lake doctor` says what to do")
        return self._cluster.explain(wrong)


def _begin(start: Start) -> str | Mapping[TopicPartition, int]:
    if isinstance(start, str) and start not in ("earliest", "latest"):
        raise LogError("unknown start", value=start, hint="earliest, latest, or a mapping of offsets")
    return start


def _ours(partitions: Iterable[Any]) -> frozenset[TopicPartition]:
    return frozenset((place.topic, place.partition) for place in partitions)


def _ignore(offsets: object, answer: object) -> None:
    """Commits have no authority: one that failed is made good by the next."""
