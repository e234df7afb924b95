"""The Kafka log as an operator sees it: topics, sizes, groups, and every record with the offsets between them.

Offsets without a record are told apart as far as a client can: what lies before the first record was trimmed; what a
reader of uncommitted records still sees was aborted; one offset alone is the mark that ends a transaction; in a topic
that is compacted the rest was compacted, in any other it is missing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import kafka
import kafka.errors
from kafka.admin import ConfigResource, ConfigResourceType

from eventlog.inspection import GroupRow, Hole, PartitionRow, Scanned, TopicRow
from eventlog.kafka_access import addresses, credentials
from eventlog.kafka_cluster import MESSAGE_BYTES, administrator, remembered, told_as, used_partitions
from eventlog.log import TopicPartition
from schemas.envelope import Position, RawRecord, Record, from_wire
from schemas.errors import LogError, NotFoundError, SchemaError, UnavailableError
from schemas.topics import TOPICS

_ASK_MS = 10_000
_POLL_MS = 50
_SILENT_POLLS = 400
_EARLIEST = -2
_LATEST = -1
_COMMITTED = "read_committed"


class KafkaInspector:
    exactly_once = False

    def __init__(self, setting: str, home: Path) -> None:
        self._setting, self._known = setting, remembered(home)
        self._client: dict[str, Any] = {
            "bootstrap_servers": addresses(setting), "client_id": "headrace-inspect", "request_timeout_ms": _ASK_MS,
            "bootstrap_timeout_ms": _ASK_MS, **credentials(os.environ)}
        self._admin = administrator(setting, self._client)
        try:
            described = self._ask(self._admin.describe_topics, list(TOPICS))
            self._topics: dict[str, Any] = {
                topic["name"]: topic for topic in described if not topic["error_code"]}
            if not self._topics:
                raise NotFoundError("no log here", where=setting, hint="`headrace log create` makes its topics")
            self._configs = self._read_configs()
        except BaseException:
            self._admin.close()
            raise

    def about(self) -> dict[str, str]:
        cluster = self._ask(self._admin.describe_cluster)
        return {"backend": "kafka", "identity": str(cluster["cluster_id"]), "cluster": str(cluster["cluster_id"]),
                "address": self._setting, "brokers": str(len(cluster["brokers"]))}

    def topics(self) -> list[TopicRow]:
        return [TopicRow(topic, used_partitions(self._known, topic, len(self._topics[topic]["partitions"])),
                         self._retention(topic)) for topic in self._there()]

    def partitions(self) -> list[PartitionRow]:
        places = [kafka.TopicPartition(topic, number) for topic in self._there()
                  for number in range(len(self._topics[topic]["partitions"]))]
        starts, ends = (self._offsets(places, which) for which in (_EARLIEST, _LATEST))
        sizes = self._sizes()
        return [PartitionRow(place.topic, place.partition, starts[place], ends[place], sizes.get(tuple(place)))
                for place in places]

    def groups(self) -> list[GroupRow]:
        """Of groups that committed a position in one of our topics."""
        ends = {(row.topic, row.partition): row.end for row in self.partitions()}
        rows = []
        for group in sorted(found["group_id"] for found in self._ask(self._admin.list_groups)):
            offsets = self._ask(self._admin.list_group_offsets, group)[group]
            ours = sorted((place, at.offset) for place, at in offsets.items() if (place.topic, place.partition) in ends)
            if ours:
                members = len(self._ask(self._admin.describe_groups, [group])[group]["members"])
                rows += [GroupRow(group, place.topic, place.partition, at, ends[tuple(place)] - at, members)
                         for place, at in ours]
        return rows

    def faults(self) -> Iterator[str]:
        yield from (f"topic `{topic}` is not there" for topic in TOPICS if topic not in self._topics)
        for topic in self._there():
            for part in self._topics[topic]["partitions"]:
                if part["leader_id"] < 0 or part["offline_replicas"]:
                    yield f"{topic}-{part['partition_index']} has no leader or an offline replica"

    def scan(self, row: PartitionRow) -> Iterator[Scanned | Hole]:
        if row.start:
            yield Hole(0, row.start - 1, "trimmed", "retention or an operator removed the beginning")
        wanted = row.start
        for message in self._read(row.topic, row.partition, row.start, row.end, _COMMITTED):
            if message.offset > wanted:
                yield from self._explain(row, wanted, message.offset - 1)
            wanted = message.offset + 1
            yield Scanned(_record(message))
        if wanted < row.end:
            yield from self._explain(row, wanted, row.end - 1)

    def keep_for(self, topics: list[str], days: float) -> None:
        """Set the retention of topics."""
        config = {"retention.ms": str(int(days * 86_400_000))}
        self._ask(self._admin.alter_configs,
                  [ConfigResource(ConfigResourceType.TOPIC, topic, config) for topic in topics])

    def close(self) -> None:
        self._admin.close()

    def _ask(self, question: Any, *arguments: Any, **options: Any) -> Any:
        try:
            return question(*arguments, **options)
        except kafka.errors.KafkaError as wrong:
            raise told_as(wrong, self._setting) from None

    def _there(self) -> list[str]:
        return [topic for topic in TOPICS if topic in self._topics]

    def _read_configs(self) -> dict[str, dict[str, str]]:
        asked = [ConfigResource(ConfigResourceType.TOPIC, topic) for topic in self._there()]
        found = self._ask(self._admin.describe_configs, asked, config_filter="all")["topic"]
        return {topic: {name: str(config["value"]) for name, config in configs.items()}
                for topic, configs in found.items()}

    def _retention(self, topic: str) -> str:
        config = self._configs[topic]
        limits = []
        if (ms := int(config.get("retention.ms", -1))) >= 0:
            limits.append(f"{ms / 86_400_000:g} days")
        if (size := int(config.get("retention.bytes", -1))) >= 0:
            limits.append(f"{size} bytes a partition")
        if "compact" in config.get("cleanup.policy", ""):
            limits.append("compacted by key")
        return ", ".join(limits) or "unlimited"

    def _offsets(self, places: list[Any], which: int) -> dict[Any, int]:
        """`read_committed`: a reader of ours goes no further than the first open transaction."""
        found = self._ask(self._admin.list_partition_offsets, dict.fromkeys(places, which), isolation_level=_COMMITTED)
        return {place: int(at.offset) for place, at in found.items()}

    def _sizes(self) -> dict[TopicPartition, int]:
        sizes: dict[TopicPartition, int] = {}
        for broker in self._ask(self._admin.describe_log_dirs, self._there()):
            for folder in broker["log_dirs"]:
                for topic in folder["topics"]:
                    for part in topic["partitions"]:
                        place = topic["name"], part["partition_index"]
                        sizes[place] = max(sizes.get(place, 0), part["partition_size"])
        return sizes

    def _explain(self, row: PartitionRow, first: int, last: int) -> Iterator[Hole]:
        """Why committed readers get nothing between two offsets."""
        aborted = set() if first == last else {
            message.offset for message in self._read(row.topic, row.partition, first, last + 1, "read_uncommitted")}
        for seen, run in groupby(range(first, last + 1), aborted.__contains__):
            offsets = list(run)
            yield self._hole(row.topic, offsets[0], offsets[-1], seen)

    def _hole(self, topic: str, first: int, last: int, aborted: bool) -> Hole:
        if aborted:
            return Hole(first, last, "transaction", "records of a transaction that was aborted")
        if first == last:
            return Hole(first, last, "transaction", "mark at the end of a transaction")
        if "compact" in self._configs[topic].get("cleanup.policy", ""):
            return Hole(first, last, "compacted", "older records of the same keys were removed")
        return Hole(first, last, "missing", "no record, and no sign of a transaction or of compaction")

    def _read(self, topic: str, part: int, start: int, end: int, isolation: str) -> Iterator[Any]:
        """Raw messages of one partition before `end`."""
        place = kafka.TopicPartition(topic, part)
        consumer = kafka.KafkaConsumer(
            **self._client, enable_auto_commit=False, auto_offset_reset="none", isolation_level=isolation,
            metrics_enabled=False, fetch_max_bytes=MESSAGE_BYTES)
        try:
            consumer.assign([place])
            consumer.seek(place, start)
            silent = 0
            while consumer.position(place) < end:
                messages = consumer.poll(timeout_ms=_POLL_MS, max_records=1000).get(place, [])
                silent = 0 if messages else silent + 1
                if silent > _SILENT_POLLS:
                    raise UnavailableError("Kafka broker gives no more records", where=f"{topic}-{part}",
                                           value=f"offset {consumer.position(place)} of {end}", hint="check the broker")
                yield from (message for message in messages if message.offset < end)
        except kafka.errors.CorruptRecordError as wrong:
            raise LogError(f"records are corrupt ({wrong})", where=f"{topic}-{part}",
                           hint="restore the broker's segment from a replica or a backup") from None
        except kafka.errors.KafkaError as wrong:
            raise told_as(wrong, self._setting) from None
        finally:
            consumer.close(autocommit=False, timeout_ms=1000)


def _record(message: Any) -> Record:
    position = Position(message.topic, message.partition, message.offset)
    headers = [(name, value) for name, value in message.headers if value is not None]
    time_us = message.timestamp * 1000
    try:
        return Record(position, from_wire(message.key, message.value, headers, time_us))
    except SchemaError as wrong:
        raw = RawRecord(message.key or b"", message.value or b"", tuple(headers), time_us, str(wrong))
        return Record(position, None, raw)
