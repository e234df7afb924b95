"""What only the Kafka log promises, against a real broker: foreign records, CloudEvents, absences, other clusters."""

from __future__ import annotations

import gc
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import kafka
import kafka.errors
import pytest

from eventlog import open_log
from eventlog.kafka import KafkaLog
from eventlog.kafka_access import credentials
from eventlog.kafka_cluster import told_as
from eventlog.kafka_consumer import KafkaSubscription
from eventlog.log import EventLog
from schemas.envelope import CONTENT_TYPE, to_headers
from schemas.errors import ConfigError, LogError, LogRecreatedError, UnavailableError
from schemas.settings import Settings
from schemas.topics import REQUESTS, TASKS, TOPICS, TRAJECTORIES
from tests.eventlog.conftest import forget_topics, start_broker
from tests.eventlog.tools import TIMEOUT_S, TURN, audited, event, poll_until, read

# The client leaves the sockets of refused connections to the garbage collector.
REFUSED = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@pytest.fixture
def log(kafka_settings: Settings) -> Iterator[EventLog]:
    opened = open_log(kafka_settings)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator:
    """A broker that a test may stop, and leaves running."""
    running = start_broker(tmp_path_factory.mktemp("own-broker"))
    yield running
    running.kill()


def messages(address: str, topic: str, count: int) -> list:
    """Records as a plain Kafka client sees them."""
    consumer = kafka.KafkaConsumer(topic, bootstrap_servers=address, auto_offset_reset="earliest")
    found: list = []
    while len(found) < count:
        found += [message for batch in consumer.poll(timeout_ms=500).values() for message in batch]
    consumer.close()
    return found


def send_foreign(address: str, topic: str, **record: object) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=address)
    producer.send(topic, **record).get(30)
    producer.close()


def test_records_that_are_no_events_come_with_their_bytes_and_the_reason(log: EventLog, broker) -> None:
    good = event("good")
    broken = [(name, b"\xff" if name == "ce_source" else value) for name, value in to_headers(good)]
    without = [(name, value) for name, value in to_headers(good) if name != "ce_id"]
    send_foreign(broker.address, TASKS, key=b"k", value=b"no headers")
    send_foreign(broker.address, TASKS, key=b"k", value=b"not UTF-8", headers=broken)
    send_foreign(broker.address, TASKS, key=b"k", value=b"no id", headers=without)
    log.append(TASKS, [good]).result(30)
    records = read(log.subscribe([TASKS]), 4)
    assert [record.event is None for record in records] == [True, True, True, False]
    assert [record.raw.value for record in records[:3]] == [b"no headers", b"not UTF-8", b"no id"]
    assert "ce_specversion" in records[0].raw.reason and "ce_id" in records[2].raw.reason
    assert "ce_source" in records[1].raw.reason and records[1].raw.headers == tuple(broken)
    assert records[3].event == good and records[3].raw is None


def test_any_cloudevents_reader_understands_our_records(log: EventLog, broker) -> None:
    from cloudevents.core.bindings.kafka import KafkaMessage, from_binary_event

    ours = event("episode-ü", 42, data=b"\x81\xa4turn\x01", source="writer/1")
    log.append(TASKS, [ours]).result(30)
    message, = messages(broker.address, TASKS, 1)
    parsed = from_binary_event(KafkaMessage(dict(message.headers), message.key, message.value))
    assert (parsed.get_id(), parsed.get_source(), parsed.get_type()) == (ours.id, "writer/1", TURN)
    assert parsed.get_specversion() == "1.0" and parsed.get_datacontenttype() == CONTENT_TYPE
    assert parsed.get_extension("sequence") == "000000000042"
    assert parsed.get_extension("partitionkey") == "episode-ü"
    assert parsed.get_data() == ours.data
    assert message.key.decode() == ours.subject and message.timestamp == ours.time_us // 1000
    assert len(message.headers) == 6


def test_topics_are_made_to_keep_everything_and_to_take_large_events(log: EventLog, broker) -> None:
    from kafka.admin import ConfigResource, ConfigResourceType

    with kafka.KafkaAdminClient(bootstrap_servers=broker.address) as admin:
        partitions = {topic["name"]: len(topic["partitions"]) for topic in admin.describe_topics(list(TOPICS))}
        found = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, TRAJECTORIES)], config_filter="all")
    assert partitions == {"tasks": 1, "requests": 4, "trajectories": 4, "scores": 4, "training": 1, "dead-letters": 1}
    values = json.dumps(found, default=str)
    for name, value in {"retention.ms": "-1", "retention.bytes": "-1", "max.message.bytes": str(33 << 20)}.items():
        assert name in values and value in values


def test_log_of_another_partition_count_goes_by_the_topics_it_finds(kafka_settings: Settings, tmp_path: Path) -> None:
    first = open_log(kafka_settings)
    second = open_log(Settings(home=str(tmp_path / "other"), log=kafka_settings.log, log_partitions=7))
    assert second.partitions(TRAJECTORIES) == first.partitions(TRAJECTORIES) == 4
    assert second.identity == first.identity
    first.close()
    second.close()


@pytest.mark.parametrize("raised", [(TRAJECTORIES,), (REQUESTS, TRAJECTORIES)])
def test_partitions_that_a_topic_was_given_later_part_no_episode(
        kafka_settings: Settings, broker, raised: tuple[str, ...]) -> None:
    log = open_log(kafka_settings)
    began = _where(log, 0)
    log.close()
    with kafka.KafkaAdminClient(bootstrap_servers=broker.address) as admin:
        admin.create_partitions(dict.fromkeys(raised, 7))
        deadline = time.monotonic() + TIMEOUT_S
        while any(len(topic["partitions"]) < 7 for topic in admin.describe_topics(list(raised))):
            assert time.monotonic() < deadline, "the broker makes no partitions"
    log = open_log(kafka_settings)
    assert log.partitions(REQUESTS) == log.partitions(TRAJECTORIES) == 4
    assert _where(log, 1) == began
    read(log.subscribe([TRAJECTORIES], "readers"), 40)
    log.close()
    assert "wrong partition" not in {kind for kind, _ in audited(kafka_settings).counts}


def _where(log: EventLog, sequence: int) -> list[int]:
    """The partitions to which the next events of 20 episodes go."""
    return [log.append(TRAJECTORIES, [event(f"episode-{number}", sequence)]).result(TIMEOUT_S)[0].partition
            for number in range(20)]


# -- the cluster that was not the one --------------------------------------------------------------------------------

def test_recreated_topic_is_a_clear_error(kafka_settings: Settings, broker, tmp_path: Path) -> None:
    open_log(kafka_settings).close()
    forget_topics(broker.address)
    with pytest.raises(LogRecreatedError, match="deleted or recreated"):
        open_log(kafka_settings)
    open_log(Settings(home=str(tmp_path / "other"), log=kafka_settings.log)).close()
    with pytest.raises(LogRecreatedError, match="deleted or recreated") as caught:
        open_log(kafka_settings)
    assert "--home" in caught.value.hint


def test_other_cluster_behind_the_address_is_a_clear_error(kafka_settings: Settings) -> None:
    open_log(kafka_settings).close()
    memory = Path(kafka_settings.home) / "kafka.json"
    known = json.loads(memory.read_text())
    memory.write_text(json.dumps(known | {"cluster": "another"}))
    with pytest.raises(LogRecreatedError, match="another Kafka cluster"):
        open_log(kafka_settings)
    for broken in ("{broken", json.dumps(known | {"partitions": {TRAJECTORIES: 0}})):
        memory.write_text(broken)
        with pytest.raises(LogError, match="cannot be read"):
            open_log(kafka_settings)
        assert memory.read_text() == broken


def test_topics_that_vanish_under_an_open_log_are_a_clear_error(kafka_settings: Settings, broker) -> None:
    log = KafkaLog(kafka_settings.log, Path(kafka_settings.home), 4, delivery_s=3)
    log.append(TASKS, [event()]).result(30)
    reader = KafkaSubscription(log._cluster, [TASKS], None, "earliest", None, None, None, watch_s=0.2)
    read(reader, 1)
    forget_topics(broker.address)
    with pytest.raises(LogRecreatedError, match="`tasks`"):
        log.append(TASKS, [event()]).result(30)
    with pytest.raises(LogRecreatedError, match="`tasks`"):
        poll_until(reader, lambda found: False)
    log.close()
    reader.close()


# -- whose groups they are -------------------------------------------------------------------------------------------

def test_groups_of_two_homes_on_one_cluster_are_strangers(kafka_settings: Settings, tmp_path: Path) -> None:
    other_settings = Settings(home=str(tmp_path / "other"), log=kafka_settings.log)
    mine, again, other = open_log(kafka_settings), open_log(kafka_settings), open_log(other_settings)
    mine.append(TASKS, [event("a", number) for number in range(3)]).result(30)
    readers = [log.subscribe([TASKS], "sink", member="sink-host-0") for log in (mine, other)]
    for reader in readers:  # Each reads everything, and neither throws the other out.
        assert [record.event.sequence for record in read(reader, 3)] == [0, 1, 2]
    readers[0].commit({(TASKS, 0): 2})
    readers[0].close()  # The commit was not waited for, but this does.
    successor = again.subscribe([TASKS], "sink", member="sink-host-0")
    assert [record.event.sequence for record in read(successor, 1)] == [2]
    for log in (mine, again, other):
        log.close()


def test_hosts_that_fill_one_lake_by_its_address_share_their_groups(kafka_settings: Settings, tmp_path: Path) -> None:
    homes = [(tmp_path / "a", "s3://bucket/lake"), (tmp_path / "b", "s3://bucket/lake/"), (tmp_path / "c", "s3://two")]
    logs = [open_log(Settings(home=str(home), log=kafka_settings.log, lake=lake)) for home, lake in homes]
    first, second, third = (log._cluster.group_id("sink") for log in logs)
    assert first == second != third and first.startswith("sink-")
    for log in logs:
        log.close()


def test_processes_that_open_a_new_home_at_once_are_of_one_mind(kafka_settings: Settings) -> None:
    open_log(kafka_settings).close()
    (Path(kafka_settings.home) / "kafka.json").unlink()
    with ThreadPoolExecutor(6) as pool:
        logs = list(pool.map(lambda _: open_log(kafka_settings), range(6)))
    assert len({log._cluster.owner for log in logs}) == 1
    assert [path.name for path in Path(kafka_settings.home).iterdir()] == ["kafka.json"]
    for log in logs:
        log.close()


# -- addresses and credentials ---------------------------------------------------------------------------------------

def test_unreachable_broker_is_told_at_once_and_in_one_paragraph(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        setting = f"kafka://127.0.0.1:{nobody.getsockname()[1]},no-such-host.invalid:9092"
        begun = time.monotonic()
        with pytest.raises(UnavailableError) as caught:
            open_log(Settings(home=str(tmp_path / "home"), log=setting))
    assert time.monotonic() - begun < 10
    paragraph = caught.value.paragraph()
    assert setting in paragraph and "refused" in paragraph and "no-such-host" in paragraph and "hint: " in paragraph
    assert capfd.readouterr() == ("", "")
    assert not (tmp_path / "home").exists()


def test_listener_that_is_no_broker_is_told_within_ten_seconds(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        setting = f"kafka://127.0.0.1:{silent.getsockname()[1]}"
        threads = threading.active_count()
        begun = time.monotonic()
        with pytest.raises(UnavailableError, match="does not answer"):
            open_log(Settings(home=str(tmp_path), log=setting))
        assert time.monotonic() - begun < 12
    assert threading.active_count() == threads
    assert capfd.readouterr() == ("", "")


def test_credentials_come_from_the_environment_and_are_not_shown(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("hunter2\n")
    found = credentials({"HEADRACE_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
                         "HEADRACE_KAFKA_SASL_MECHANISM": "SCRAM-SHA-512", "HEADRACE_KAFKA_USERNAME": "me",
                         "HEADRACE_KAFKA_PASSWORD_FILE": str(secret), "HEADRACE_KAFKA_CA_FILE": str(secret)})
    assert found == {"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512", "sasl_plain_username": "me",
                     "sasl_plain_password": "hunter2", "ssl_cafile": str(secret)}
    assert credentials({}) == {"security_protocol": "PLAINTEXT"}
    for wrong in ({"SECURITY_PROTOCOL": "TLS"}, {"SECURITY_PROTOCOL": "SASL_SSL", "USERNAME": "me"},
                  {"SECURITY_PROTOCOL": "SASL_SSL", "USERNAME": "me", "PASSWORD_FILE": str(tmp_path / "none")},
                  {"SECURITY_PROTOCOL": "SSL", "CA_FILE": str(tmp_path / "none")}):
        with pytest.raises(ConfigError) as caught:
            credentials({f"HEADRACE_KAFKA_{name}": value for name, value in wrong.items()})
        assert "HEADRACE_KAFKA" in caught.value.paragraph()


def test_wrong_credentials_are_told_without_the_password(broker, tmp_path: Path,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SECURITY_PROTOCOL": "SASL_PLAINTEXT", "USERNAME": "me", "PASSWORD": "hunter2"}.items():
        monkeypatch.setenv(f"HEADRACE_KAFKA_{name}", value)
    begun = time.monotonic()
    with pytest.raises(UnavailableError) as caught:
        open_log(Settings(home=str(tmp_path), log=broker.log_setting))
    assert "hunter2" not in caught.value.paragraph() and time.monotonic() - begun < 12


def test_every_failure_of_the_client_has_words() -> None:
    kinds = [kind for kind in vars(kafka.errors).values()
             if isinstance(kind, type) and issubclass(kind, kafka.errors.KafkaError)]
    assert len(kinds) > 50
    for kind in kinds:
        said = told_as(kind.__new__(kind), "kafka://h:1").paragraph()
        assert kind.__name__ in said or "credentials" in said or "too large" in said


# -- a broker that is away -------------------------------------------------------------------------------------------

@REFUSED
def test_broker_that_is_away_fails_appends_in_time_and_holds_the_appender_back(own_broker, tmp_path: Path) -> None:
    log = KafkaLog(own_broker.log_setting, tmp_path / "home", 4, delivery_s=4)
    reader = log.subscribe([TRAJECTORIES])
    assert log.append(TRAJECTORIES, [event("a", 0)]).result(30)[0].offset == 0
    own_broker.pause()
    begun = time.monotonic()
    futures = [log.append(TRAJECTORIES, [event("a", 1, bytes(16 << 20))]) for _ in range(3)]
    with pytest.raises(UnavailableError):  # The buffer is full: waits, then says so, or the earlier ones fail first.
        log.append(TRAJECTORIES, [event("a", 2, bytes(17 << 20))]).result(30)
    for future in futures:
        with pytest.raises(UnavailableError, match="does not answer"):
            future.result(30)
    assert time.monotonic() - begun < 25
    own_broker.pause(False)
    positions = append_until_accepted(log, event("a", 3))
    found = poll_until(reader, lambda records: any(record.event.sequence == 3 for record in records))
    assert found[0].event.sequence == 0 and found[-1].position == positions[0]
    log.close()
    gc.collect()


def append_until_accepted(log: KafkaLog, wanted):
    deadline = time.monotonic() + 4 * TIMEOUT_S  # The client takes its time to come back to a broker that was away.
    while True:
        try:
            return log.append(TRAJECTORIES, [wanted]).result(30)
        except UnavailableError:
            assert time.monotonic() < deadline


@REFUSED
def test_appends_and_readers_ride_out_a_broker_that_starts_again(own_broker, tmp_path: Path) -> None:
    log = KafkaLog(own_broker.log_setting, tmp_path / "home", 4)
    reader = log.subscribe([TASKS], "g", member="m")
    log.append(TASKS, [event("a", 0)]).result(30)
    read(reader, 1)
    own_broker.stop()
    future = log.append(TASKS, [event("a", 1)])
    assert not future.done()
    own_broker.start()
    assert future.result(60)[0].offset == 1
    assert [record.event.sequence for record in read(reader, 1)] == [1]
    log.close()
    gc.collect()


@pytest.mark.parametrize("group", [None, "g"])
def test_reader_that_is_stuck_is_made_anew_where_it_stood_and_counted(log: KafkaLog, group: str | None) -> None:
    told: list[str] = []
    reader = KafkaSubscription(log._cluster, [TASKS], group, "earliest", "m" if group else None,
                               lambda _: told.append("assign"), lambda _: told.append("revoke"), watch_s=0.3)
    log.append(TASKS, [event("a", number) for number in range(3)]).result(30)
    read(reader, 3)
    reader._consumer.pause(*reader._consumer.assignment())  # Assigned, with lag, and nothing comes.
    log.append(TASKS, [event("a", number) for number in range(3, 6)]).result(30)
    assert [record.event.sequence for record in read(reader, 3)] == [3, 4, 5]
    assert reader.recreated == 1
    assert told == ["assign"]
    reader.close()


def test_idle_reader_is_left_alone(log: KafkaLog) -> None:
    reader = KafkaSubscription(log._cluster, [TASKS], None, "earliest", None, None, None, watch_s=0.05)
    for number in range(4):
        log.append(TASKS, [event("a", number)]).result(30)
        read(reader, 1)
        assert reader.poll(0.6) == []
    assert reader.recreated == 0
    reader.close()
