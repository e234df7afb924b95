"""Reaching a Kafka cluster: address, credentials, topics, and whether it is the cluster that the home knows.

Credentials come from the environment (`HEADRACE_KAFKA_*`) or a file named there, and are never shown. The cluster and
its topics are remembered in `home/kafka.json`: offsets of a recreated cluster mean nothing to a lake that read the
old one, so a change is an error, not a fresh start.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import kafka
import kafka.errors
from kafka.net.compat import KafkaNetClient

from schemas.envelope import MAX_EVENT_BYTES
from schemas.errors import ConfigError, HeadraceError, LogError, LogRecreatedError, UnavailableError
from schemas.topics import REQUESTS, TOPICS, TRAJECTORIES, partitions_of

MESSAGE_BYTES = MAX_EVENT_BYTES + (1 << 20)
"""An event with its headers; the broker checks it on the compressed batch."""
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_CONNECT_S = 3.0
_BOOTSTRAP_S = 6.0
_REQUEST_S = 15.0
_TOPICS_READY_S = 30.0
_HINT = "check the address and that the broker runs; `make kafka` starts one on this machine"


def addresses(setting: str) -> list[str]:
    """`kafka://host:port[,host:port]` as a list of `host:port`."""
    found = []
    for part in setting.removeprefix("kafka://").rstrip("/").split(","):
        host, _, port = part.strip().rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536 or "/" in host:
            raise ConfigError("not the address of a Kafka broker", where="setting `log`", value=setting,
                              hint="kafka://host:port[,host:port]")
        found.append(f"{host}:{int(port)}")
    return found


def credentials(environment: Mapping[str, str]) -> dict[str, Any]:
    """Client settings for TLS and SASL from `HEADRACE_KAFKA_*`."""
    def given(name: str) -> str:
        return environment.get(f"HEADRACE_KAFKA_{name}", "")

    protocol = given("SECURITY_PROTOCOL") or "PLAINTEXT"
    if protocol not in _PROTOCOLS:
        raise ConfigError("unknown security protocol", where="HEADRACE_KAFKA_SECURITY_PROTOCOL", value=protocol,
                          hint=f"one of {', '.join(_PROTOCOLS)}")
    found: dict[str, Any] = {"security_protocol": protocol}
    if given("CA_FILE"):
        if not Path(given("CA_FILE")).is_file():
            raise ConfigError("no such file", where="HEADRACE_KAFKA_CA_FILE", value=given("CA_FILE"))
        found["ssl_cafile"] = given("CA_FILE")
    if protocol.startswith("SASL"):
        found |= {"sasl_mechanism": given("SASL_MECHANISM") or "PLAIN", "sasl_plain_username": given("USERNAME"),
                  "sasl_plain_password": given("PASSWORD") or _password_file(given("PASSWORD_FILE"))}
        if not found["sasl_plain_username"] or not found["sasl_plain_password"]:
            raise ConfigError("SASL needs a user name and a password", where="environment",
                              hint="set HEADRACE_KAFKA_USERNAME and HEADRACE_KAFKA_PASSWORD or ..._PASSWORD_FILE")
    return found


def _password_file(name: str) -> str:
    if not name:
        return ""
    try:
        return Path(name).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        raise ConfigError("password file cannot be read", where="HEADRACE_KAFKA_PASSWORD_FILE", value=name) from None


class Cluster:
    """An administrator's connection. `client` holds the settings that every client of this cluster shares."""

    def __init__(self, setting: str, home: Path, partitions: int) -> None:
        # The client's log would repeat every failed attempt, and shows passwords at level debug.
        quiet = logging.getLogger("kafka")
        if quiet.level == logging.NOTSET:
            quiet.addHandler(logging.NullHandler())
            quiet.setLevel(logging.CRITICAL)
        self.setting = setting
        self.client: dict[str, Any] = {
            "bootstrap_servers": addresses(setting), "client_id": "headrace", "metrics_enabled": False,
            "bootstrap_timeout_ms": int(_BOOTSTRAP_S * 1000), "request_timeout_ms": int(_REQUEST_S * 1000),
            "allow_auto_create_topics": False, **credentials(os.environ)}
        self._home = home
        _knock(self.client["bootstrap_servers"], setting)
        self.admin = self._connect()
        try:
            self.identity, self.partitions = self._enter(partitions)
        except kafka.errors.KafkaError as wrong:
            self.close()
            raise told_as(wrong, setting) from None
        except BaseException:
            self.close()
            raise

    def ends(self, topics: list[str]) -> dict[tuple[str, int], int]:
        """Next offset of every partition."""
        asked = {kafka.TopicPartition(topic, part): -1 for topic in topics for part in range(self.partitions[topic])}
        try:
            answer = self.admin.list_partition_offsets(asked, timeout_ms=int(_REQUEST_S * 1000)) if asked else {}
        except kafka.errors.KafkaError as wrong:
            raise told_as(wrong, self.setting) from None
        return {(place.topic, place.partition): int(found.offset) for place, found in answer.items()}

    def check_same(self) -> None:
        """Raises LogRecreatedError if the cluster or a topic is no longer the one we opened."""
        self._compare(self._remembered(), self.admin.describe_cluster()["cluster_id"], self._topics())

    def explain(self, wrong: Exception) -> HeadraceError:
        """A client's failure, or the deeper reason: that the log was recreated."""
        try:
            self.check_same()
        except LogRecreatedError as recreated:
            return recreated
        except kafka.errors.KafkaError:
            pass  # The broker is away; `wrong` says so.
        return told_as(wrong, self.setting)

    def close(self) -> None:
        self.admin.close()

    def _connect(self) -> kafka.KafkaAdminClient:
        made: list[Any] = []

        def client(**settings: Any) -> Any:
            made.append(KafkaNetClient(**settings))
            return made[-1]

        settings = {name: value for name, value in self.client.items()
                    if name not in ("metrics_enabled", "allow_auto_create_topics")}
        try:
            return kafka.KafkaAdminClient(kafka_client=client, **settings)
        except kafka.errors.KafkaError as wrong:
            for started in made:
                started.close()
            raise told_as(wrong, self.setting) from None

    def _enter(self, partitions: int) -> tuple[str, dict[str, int]]:
        known = self._remembered()
        cluster, topics = str(self.admin.describe_cluster()["cluster_id"]), self._topics()
        self._compare(known, cluster, topics)
        absent = [topic for topic in TOPICS if topic not in topics]
        if absent:
            self._create(absent, partitions)
            topics = self._topics()
        counts = {topic: len(topics[topic]["partitions"]) for topic in TOPICS}
        if counts[REQUESTS] != counts[TRAJECTORIES]:
            raise LogError("topics `requests` and `trajectories` need equal partition counts", where=self.setting,
                           value=(counts[REQUESTS], counts[TRAJECTORIES]),
                           hint="an episode's events must stay with its request: recreate the topics")
        self._remember(cluster, {topic: str(topics[topic].get("topic_id", "")) for topic in TOPICS})
        return cluster, counts

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
        hint = (f"the lake's positions belong to the old one: use another --home, or remove {self._file()} "
                "and rebuild the lake")
        if known and known["cluster"] != cluster:
            raise LogRecreatedError("another Kafka cluster answers than the one this home was used with",
                                    where=self.setting, value=f"cluster {cluster}, known {known['cluster']}", hint=hint)
        for topic, number in known.get("topics", {}).items():
            found = str(topics[topic].get("topic_id", "")) if topic in topics else "none"
            if number and found != number:
                raise LogRecreatedError(f"topic `{topic}` was deleted or recreated", where=self.setting,
                                        value=f"id {found}, known {number}", hint=hint)

    def _file(self) -> Path:
        return self._home / "kafka.json"

    def _remembered(self) -> dict[str, Any]:
        try:
            known = json.loads(self._file().read_text(encoding="utf-8"))
            return {"cluster": str(known["cluster"]), "topics": dict(known["topics"])}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError):
            raise LogError("memory of the Kafka cluster cannot be read", where=str(self._file()),
                           hint="restore the file, or remove it if this home's lake is empty") from None

    def _remember(self, cluster: str, topics: Mapping[str, str]) -> None:
        text = json.dumps({"cluster": cluster, "topics": topics}, indent=1)
        beside = self._file().with_name(f"kafka.json.{os.getpid()}.part")
        try:
            self._home.mkdir(parents=True, exist_ok=True)
            with beside.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self._file())
        except OSError as wrong:
            raise UnavailableError(f"home cannot be written ({wrong.strerror})", where=str(self._home),
                                   hint="choose a writable --home") from None


def told_as(wrong: Exception, where: str) -> HeadraceError:
    """What a client's failure means for the log."""
    if isinstance(wrong, HeadraceError):
        return wrong
    reason = f"{type(wrong).__name__}: {wrong}" if str(wrong) else type(wrong).__name__
    match wrong:
        case kafka.errors.SaslAuthenticationFailedError():
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
        case kafka.errors.RetriableError():
            return UnavailableError(f"Kafka broker does not answer ({reason[:200]})", where=where, hint=_HINT)
    return LogError(f"Kafka failed ({reason[:300]})", where=where)


def _knock(servers: list[str], setting: str) -> None:
    """Is anyone there? Answers at once where a client would try again and again."""
    reasons = []
    deadline = time.monotonic() + 2 * _CONNECT_S
    for server in servers:
        host, _, port = server.rpartition(":")
        left = min(_CONNECT_S, deadline - time.monotonic())
        if left <= 0:
            break
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=left).close()
            return
        except OSError as wrong:
            reasons.append(f"{server}: {wrong.strerror or wrong}")
    raise UnavailableError("no Kafka broker can be reached", where=setting, value="; ".join(reasons), hint=_HINT)
