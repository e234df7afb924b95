"""Reaching a Kafka cluster: topics, whose consumer groups they are, and whether it is the one that the home knows.

The cluster and its topics are remembered in `home/kafka.json`: offsets of a recreated cluster mean nothing to a lake
that read the old one, so a change is an error, not a fresh start. Partitions that a topic was given later are not used:
the next events of an episode would go to another partition than its first.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import kafka
import kafka.errors

from eventlog.kafka_access import HINT, addresses, credentials, hush, knock, once_refused
from schemas.envelope import MAX_EVENT_BYTES
from schemas.errors import HeadraceError, LogError, LogRecreatedError, UnavailableError
from schemas.topics import REQUESTS, TOPICS, TRAJECTORIES, partitions_of

MESSAGE_BYTES = MAX_EVENT_BYTES + (1 << 20)
"""An event with its headers; the broker checks it on the compressed batch."""
_BOOTSTRAP_S = 6.0
_REQUEST_S = 15.0
_TOPICS_READY_S = 30.0
_COMES_BACK_S = 10.0
_LOOK_AGAIN_S = 0.05
_LOOK_AROUND_S = 5.0
"""How often a client asks which topics there are: so long may a log that was made anew go unnoticed."""
_OWNER_LETTERS = 12


class Cluster:
    """An administrator's connection. `client` holds the settings that every client of this cluster shares.

    `owner` tells the consumer groups of one lake from another's: two hosts that fill the same lake by URL share it,
    and so do all processes of a home; two homes on one cluster have nothing in common but the records.
    """

    def __init__(self, setting: str, home: Path, partitions: int, lake: str = "") -> None:
        self.setting = setting
        self.client: dict[str, Any] = {
            "bootstrap_servers": addresses(setting), "client_id": "headrace", "metrics_enabled": False,
            "bootstrap_timeout_ms": int(_BOOTSTRAP_S * 1000), "request_timeout_ms": int(_REQUEST_S * 1000),
            "allow_auto_create_topics": False,
            "metadata_max_age_ms": int(_LOOK_AROUND_S * 1000), **credentials(os.environ)}
        self._home, self._lake = home, lake
        self._ids: dict[str, str] = {}
        self._changed: tuple[str, str] | None = None
        self.admin = administrator(setting, self.client)
        try:
            self.identity, self.partitions, self.owner = self._enter(partitions)
        except kafka.errors.KafkaError as wrong:
            self.close()
            raise told_as(wrong, setting) from None
        except BaseException:
            self.close()
            raise

    def ends(self, topics: list[str], patience_s: float) -> dict[tuple[str, int], int]:
        """Next offset of every partition. Readers get no further than the first open transaction of another writer:
        such a one is waited for, then told, for whoever reads up to these ends would wait for it in silence."""
        places = [kafka.TopicPartition(topic, part) for topic in topics for part in range(self.partitions[topic])]
        ends = self._ends(places, "read_uncommitted")
        begun = time.monotonic()
        while held := self._held_back(ends):
            place, reached = held
            if time.monotonic() - begun > patience_s:
                raise UnavailableError("a transaction of another writer is open and holds all readers back",
                                       where=f"{place.topic}-{place.partition}", value=f"offset {reached}",
                                       hint="end that writer; `kafka-transactions.sh find-hanging` tells who it is")
            time.sleep(_LOOK_AGAIN_S)
        return {(place.topic, place.partition): end for place, end in ends.items()}

    def _held_back(self, ends: Mapping[Any, int]) -> tuple[Any, int] | None:
        """A partition whose readers do not get to its end, and how far they get."""
        reached = self._ends(list(ends), "read_committed")
        return next(((place, at) for place, at in reached.items() if at < ends[place]), None)

    def _ends(self, places: list[Any], isolation: str) -> dict[Any, int]:
        if not places:
            return {}
        deadline = time.monotonic() + _COMES_BACK_S
        while True:
            try:
                found = self.admin.list_partition_offsets(dict.fromkeys(places, -1), isolation_level=isolation,
                                                          timeout_ms=int(_REQUEST_S * 1000))
                break
            except kafka.errors.NodeNotReadyError as wrong:  # No connection yet, to a broker that is back perhaps.
                if time.monotonic() > deadline:
                    raise told_as(wrong, self.setting) from None
                time.sleep(_LOOK_AGAIN_S)
            except kafka.errors.KafkaError as wrong:
                raise told_as(wrong, self.setting) from None
        return {place: int(at.offset) for place, at in found.items()}

    def group_id(self, group: str) -> str:
        """The name of a consumer group on the cluster."""
        return f"{group}-{self.owner}"

    def check_same(self) -> None:
        """Raises LogRecreatedError if the cluster or a topic is no longer the one we opened."""
        self._compare(self._remembered(), self.admin.describe_cluster()["cluster_id"], self._topics())

    def watch(self, metadata: Any) -> None:
        """Listen to what a client hears of the cluster: it asks for topics by name and reads on in one made anew."""
        metadata.add_listener(self._heard)

    def refuse_another(self) -> None:
        """Raises LogRecreatedError if a client has heard of another cluster or topic than we opened."""
        if self._changed is not None:
            raise self._another(*self._changed)

    def explain(self, wrong: Exception, patience_s: float = 0.0) -> HeadraceError:
        """A client's failure, or the deeper reason: that the log was recreated. `patience_s` is how long a broker that
        cannot tell yet is asked again."""
        deadline = time.monotonic() + patience_s
        while True:
            try:
                self.refuse_another()
                self.check_same()
            except LogRecreatedError as recreated:
                return recreated
            except kafka.errors.KafkaError:  # The broker is away; `wrong` says so.
                if time.monotonic() < deadline:
                    time.sleep(_LOOK_AGAIN_S)
                    continue
            return told_as(wrong, self.setting)

    def close(self) -> None:
        self.admin.close()

    def _enter(self, partitions: int) -> tuple[str, dict[str, int], str]:
        known = self._remembered()
        cluster, topics = str(self.admin.describe_cluster()["cluster_id"]), self._topics()
        self._compare(known, cluster, topics)
        absent = [topic for topic in TOPICS if topic not in topics]
        if absent:
            self._create(absent, partitions)
            topics = self._topics()
        counts = {topic: used_partitions(known, topic, len(topics[topic]["partitions"])) for topic in TOPICS}
        if counts[REQUESTS] != counts[TRAJECTORIES]:
            raise LogError("topics `requests` and `trajectories` need equal partition counts", where=self.setting,
                           value=(counts[REQUESTS], counts[TRAJECTORIES]),
                           hint="an episode's events must stay with its request: recreate the topics")
        self._ids = {topic: str(topics[topic].get("topic_id", "")) for topic in TOPICS}
        return cluster, counts, self._own(self._remember(
            known, {"cluster": cluster, "topics": self._ids, "partitions": counts}))

    def _own(self, home: str) -> str:
        """A lake at a URL may be filled by hosts that share nothing else; any other belongs to its home."""
        if "://" not in self._lake:
            return home
        return hashlib.sha256(self._lake.rstrip("/").encode()).hexdigest()[:_OWNER_LETTERS]

    def _topics(self) -> dict[str, Any]:
        described = self.admin.describe_topics(list(TOPICS))
        return {topic["name"]: topic for topic in described if not topic["error_code"]}

    def _create(self, absent: list[str], partitions: int) -> None:
        configs = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete",
                   "max.message.bytes": str(MESSAGE_BYTES), "message.timestamp.type": "CreateTime"}
        wanted = {topic: {"num_partitions": partitions_of(topic, partitions), "configs": configs} for topic in absent}
        with contextlib.suppress(kafka.errors.TopicAlreadyExistsError):  # Another process opened the same new log.
            self.admin.create_topics(wanted, timeout_ms=int(_REQUEST_S * 1000))
        self.admin.wait_for_topics(list(TOPICS), timeout_ms=int(_TOPICS_READY_S * 1000))

    def _compare(self, known: dict[str, Any], cluster: str, topics: Mapping[str, Any]) -> None:
        if known and known["cluster"] != cluster:
            self._changed = ("another Kafka cluster answers than the one this home was used with",
                             f"cluster {cluster}, known {known['cluster']}")
            self.refuse_another()
        for topic, number in known.get("topics", {}).items():
            found = str(topics[topic].get("topic_id", "")) if topic in topics else "none"
            if number and found != number:
                told = (f"topic `{topic}` was deleted or recreated", f"id {found}, known {number}")
                if topic in topics:  # One that is away may only be away for the moment.
                    self._changed = told
                raise self._another(*told)

    def _another(self, what: str, value: str) -> LogRecreatedError:
        hint = (f"the lake's positions belong to the old one: use another --home, or remove {self._file()} "
                "and rebuild the lake")
        return LogRecreatedError(what, where=self.setting, value=value, hint=hint)

    def _heard(self, metadata: Any) -> None:
        """On a client's thread. A topic that is away for the moment has no id."""
        if metadata.cluster_id not in (None, self.identity):
            self._changed = ("another Kafka cluster answers than the one that was opened",
                             f"cluster {metadata.cluster_id}, known {self.identity}")
            return
        for topic, known in self._ids.items():
            found = metadata.topic_id(topic)
            if known and found and str(found) != known:
                self._changed = (f"topic `{topic}` was deleted and recreated", f"id {found}, known {known}")

    def _file(self) -> Path:
        return _memory_of(self._home)

    def _remembered(self) -> dict[str, Any]:
        return remembered(self._home)

    def _remember(self, known: dict[str, Any], now: dict[str, Any]) -> str:
        """Keep what was found; answers with the home's own id, which the first to open the log here makes up."""
        now["owner"] = known.get("owner") or uuid.uuid4().hex[:_OWNER_LETTERS]
        if now == known:
            return str(now["owner"])
        beside = self._file().with_name(f"kafka.json.{uuid.uuid4().hex}.part")
        try:
            self._home.mkdir(parents=True, exist_ok=True)
            try:
                with beside.open("w", encoding="utf-8") as file:
                    file.write(json.dumps(now, indent=1))
                    file.flush()
                    os.fsync(file.fileno())
                if known:
                    beside.replace(self._file())
                else:
                    os.link(beside, self._file())
            finally:
                beside.unlink(missing_ok=True)
        except FileExistsError:  # Another process of this home was first, and its id counts.
            theirs = self._remembered()
            return str(theirs["owner"]) if theirs.get("owner") else self._remember(theirs, now)
        except OSError as wrong:
            raise UnavailableError(f"home cannot be written ({wrong.strerror})", where=str(self._home),
                                   hint="choose a writable --home") from None
        return str(now["owner"])


def remembered(home: Path) -> dict[str, Any]:
    """What a home knows of its cluster; empty for a new one. Raises LogError if that cannot be read."""
    file = _memory_of(home)
    try:
        known = json.loads(file.read_text(encoding="utf-8"))
        counts = {str(topic): int(count) for topic, count in known.get("partitions", {}).items()}
        if min(counts.values(), default=1) < 1:
            raise ValueError(counts)
        return {"cluster": str(known["cluster"]), "topics": dict(known["topics"]), "partitions": counts,
                "owner": str(known.get("owner", ""))}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise LogError("memory of the Kafka cluster cannot be read", where=str(file),
                       hint="restore the file, or remove it if this home's lake is empty") from None


def used_partitions(known: Mapping[str, Any], topic: str, found: int) -> int:
    """How many of a topic's partitions the log is made of: those it had when the home first saw it."""
    return min(int(known.get("partitions", {}).get(topic, found)), found)


def _memory_of(home: Path) -> Path:
    return home / "kafka.json"


def administrator(setting: str, client: Mapping[str, Any]) -> kafka.KafkaAdminClient:
    """A connection that was let in. Raises UnavailableError with the reason, after one attempt at each address."""
    hush()
    knock(setting, client)
    made: list[Any] = []
    settings = {name: value for name, value in client.items()
                if name not in ("metrics_enabled", "allow_auto_create_topics")}
    try:
        return kafka.KafkaAdminClient(kafka_client=once_refused(made), **settings)
    except kafka.errors.KafkaError as wrong:
        for started in made:
            started.close()
        raise told_as(wrong, setting) from None


def told_as(wrong: Exception, where: str) -> HeadraceError:
    """What a client's failure means for the log."""
    if isinstance(wrong, HeadraceError):
        return wrong
    reason = f"{type(wrong).__name__}: {wrong}" if str(wrong) else type(wrong).__name__
    match wrong:
        case kafka.errors.SaslAuthenticationFailedError() | kafka.errors.UnsupportedSaslMechanismError():
            return UnavailableError("Kafka refused the credentials", where=where,
                                    hint="check the HEADRACE_KAFKA_* environment variables")
        case kafka.errors.MessageSizeTooLargeError() | kafka.errors.RecordListTooLargeError():
            return LogError("event is too large for the topic", where=where, value=str(wrong)[:200],
                            hint=f"set the topic's max.message.bytes to {MESSAGE_BYTES}")
        case kafka.errors.AuthorizationError():
            return LogError("Kafka does not allow this", where=where, value=reason[:200],
                            hint="give the user read, write, create and describe on the topics and groups")
        case (kafka.errors.OutOfOrderSequenceNumberError() | kafka.errors.UnknownProducerIdError()
              | kafka.errors.InvalidProducerEpochError()):  # After an absence; the client has numbered itself anew.
            return UnavailableError(f"Kafka broker lost track of this producer ({reason[:200]})", where=where,
                                    hint="append the same events again: readers drop what is there twice")
        case _ if type(wrong) is kafka.errors.KafkaError:  # Not of the broker: a client that gave up, or its batch.
            return UnavailableError(f"Kafka client gave up ({reason[:200]})", where=where,
                                    hint="append the same events again: readers drop what is there twice")
        case kafka.errors.RetriableError():
            return UnavailableError(f"Kafka broker does not answer ({reason[:200]})", where=where, hint=HINT)
    return LogError(f"Kafka failed ({reason[:300]})", where=where)
