"""The audit finds what is planted by hand in a sound log, and nothing in a sound one. Real files, a real broker."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from eventlog import open_log
from eventlog.audit import SHOWN, Audit, Finding
from eventlog.inspection import PartitionRow, Scanned, TopicRow, inspect_log
from eventlog.log import EventLog
from eventlog.sqlite_file import FORMAT, earlier_checksums
from eventlog.sqlite_rows import COLUMNS
from schemas.codec import make_event
from schemas.envelope import Event, Position, Record, to_headers, wire_type
from schemas.errors import LogDamagedError, NotFoundError
from schemas.events import (
    CancelRequested,
    EpisodeFinished,
    EpisodeResumed,
    EpisodeStarted,
    Payload,
    SandboxInfo,
    ToolCalled,
    TurnGenerated,
)
from schemas.settings import Settings
from schemas.tokens import pack_ids, pack_logprobs
from schemas.topics import REQUESTS, SCORES, TRAJECTORIES, partition_for
from tests.eventlog.tools import TIMEOUT_S, audited

AT = 1_700_000_000_123_000
STARTED = EpisodeStarted(run_id="run", task_id="task", policy="tiny", sandbox=SandboxInfo(backend="process"), at=AT)
FINISHED = EpisodeFinished(termination="completed", at=AT)


def turn(number: int, logprob: float = -0.5) -> TurnGenerated:
    return TurnGenerated(turn=number, context=pack_ids([1, 2]), generated=pack_ids([3]),
                         logprobs=pack_logprobs([logprob]), started_at=AT, finished_at=AT)


def event(episode: str, sequence: int, payload: Payload, source: str = "writer-1") -> Event:
    return make_event(payload, subject=episode, source=source, time_us=AT + sequence, sequence=sequence,
                      event_id=f"{episode}-{sequence}-{source}")


def sound(log: EventLog, episodes: int = 12) -> None:
    """Whole episodes, one that goes on, a takeover with a zombie that wakes up, a lost race, facts."""
    for number in range(episodes):
        name = f"episode-{number}"
        told = [event(name, 0, STARTED), event(name, 1, turn(0)),
                event(name, 2, ToolCalled(turn=0, call_id="c", tool="calc", arguments="{}", at=AT)),
                event(name, 3, turn(1))]
        log.append(TRAJECTORIES, told if number == 3 else [*told, event(name, 4, FINISHED)]).result()
        log.append(REQUESTS, [event(name, 0, CancelRequested(episode_id=name))]).result()
    log.append(TRAJECTORIES, [
        event("taken", 0, STARTED, "a"), event("taken", 0, STARTED, "b"),
        event("taken", 1, EpisodeResumed(attempt=1, at=AT), "b"), event("taken", 2, turn(0), "a"),
        event("taken", 2, turn(0), "b"), event("taken", 3, FINISHED, "b"), event("taken", 3, turn(1), "a")]).result()


def faults(audit: Audit) -> set[str]:
    return {kind for kind, fault in audit.counts if fault}


def of(audit: Audit, kind: str) -> list[Finding]:
    return [finding for finding in audit.examples if finding.kind == kind]


def test_sound_log_has_no_fault_and_its_fenced_events_are_told(log: EventLog, log_settings: Settings) -> None:
    sound(log)
    audit = audited(log_settings)
    assert audit.faults == 0 and faults(audit) == set()
    assert audit.counts == {("fenced: duplicate_sequence", False): 1, ("fenced: not_owner", False): 1,
                            ("fenced: after_finish", False): 1}
    assert sum(one.events for one in audit.partitions) == 12 * 6 - 1 + 7
    assert sum(one.episodes for one in audit.partitions) == 13
    (zombie,) = of(audit, "fenced: not_owner")
    assert zombie.episode == "taken" and "from a while b owns the episode" in zombie.detail


def test_log_that_is_not_there_is_told_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no log here"):
        inspect_log(Settings(home=str(tmp_path / "home")))
    assert not (tmp_path / "home").exists()


# -- the embedded log: rows changed by hand ---------------------------------------------------------------------------

_IN = f"topic = 2 and partition = {partition_for('episode-5', 4)}"
_MINE = "topic = 2 and subject = 'episode-5' and sequence"
_COPY = ("insert into events select topic, partition, (select next_offset from heads h where h.topic = events.topic and"
         " h.partition = events.partition), {id}, source, type, subject, sequence, time_us, data, null from events"
         " where {where}; update heads set next_offset = next_offset + 1 where " + _IN)

PLANTED: dict[str, tuple[str, set[str]]] = {
    "a row is gone": (f"delete from events where {_MINE} = 2", {"offsets missing", "broken sequence"}),
    "the last row is gone": (
        f"delete from events where {_IN} and offset = (select max(offset) from events where {_IN})",
        {"offsets missing"}),
    "all rows of a partition are gone": (f"delete from events where {_IN}", {"offsets missing"}),
    "a byte of a payload": ("update events set data = cast(substr(data, 1, length(data) - 1) || x'07' as blob)"
                            f" where {_MINE} = 1", {"damaged record"}),
    "a byte of the text": ("update events set data = cast(replace(cast(data as text), 'comp', 'Comp') as blob)"
                           f" where {_MINE} = 4", {"damaged record"}),
    "an empty value": (f"update events set data = x'' where {_MINE} = 1", {"damaged record", "schema violation"}),
    "another type": (f"update events set type = 'headrace.tool.called.v1' where {_MINE} = 1",
                     {"damaged record", "schema violation"}),
    "a foreign type": (f"update events set type = 'com.example.ping' where {_MINE} = 1",
                       {"damaged record", "foreign type"}),
    "a missing source": (f"update events set source = '' where {_MINE} = 1", {"unreadable record", "broken sequence"}),
    "an id that is not UTF-8": (f"update events set id = cast(x'ff80' as text) where {_MINE} = 1",
                                {"unreadable record", "broken sequence"}),
    "a sequence that is text": (f"update events set sequence = 'one' where {_MINE} = 1",
                                {"unreadable record", "broken sequence"}),
    "a value that is text": (f"update events set data = 'text' where {_MINE} = 1",
                             {"unreadable record", "broken sequence"}),
    "a null": ("pragma writable_schema = 1; update sqlite_schema set sql = replace(sql, 'data blob not null',"
               " 'data blob'); pragma writable_schema = reset;"
               f" update events set data = null where {_MINE} = 1", {"unreadable record", "broken sequence"}),
    "the same event twice": ("drop index events_by_id; " + _COPY.format(id="id", where=f"{_MINE} = 3"),
                             {"store", "duplicate id"}),
    "the same sequence twice": (
        _COPY.format(id="'other'", where=_MINE.replace("episode-5", "episode-3") + " = 3").replace(
            _IN, f"topic = 2 and partition = {partition_for('episode-3', 4)}"), {"broken sequence"}),
    "an event beyond the end": ("insert into events select topic, partition, 999, 'far', source, type, subject, 9,"
                                f" time_us, data, null from events where {_MINE} = 1", {"store"}),
    "an event in a wrong partition": (
        f"insert into events select 2, {(partition_for('episode-5', 4) + 1) % 4}, 99, 'lost', source, type, subject, 5,"
        f" time_us, data, null from events where {_MINE} = 1; update heads set next_offset = 100 where topic = 2",
        {"offsets missing", "wrong partition", "broken sequence"}),
    "an event in no partition": (f"update events set partition = 77 where {_MINE} = 2",
                                 {"store", "offsets missing", "broken sequence"}),
    "an event in a wrong topic": (
        f"update events set topic = 3, offset = 0 where {_MINE} = 4; update heads set next_offset = 1 where topic = 3"
        f" and partition = {partition_for('episode-5', 4)}", {"offsets missing", "wrong topic", "damaged record"}),
    "an index is gone": ("drop index events_by_offset", {"store"}),
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_planted_in_the_file_is_found(name: str, sqlite_settings: Settings) -> None:
    log = open_log(sqlite_settings)
    sound(log)
    log.close()
    statements, expected = PLANTED[name]
    with apsw.Connection(f"{sqlite_settings.home}/log.db") as connection:
        connection.execute(statements)
    connection.close()
    audit = audited(sqlite_settings)
    assert faults(audit) == expected, audit.examples
    named = [finding for finding in audit.examples if finding.fault and finding.kind != "store"]
    assert all(finding.position is not None and finding.position.topic in (TRAJECTORIES, SCORES) for finding in named)


def test_events_in_each_others_place_are_told_though_each_is_whole(sqlite_settings: Settings) -> None:
    """Two of different episodes: every sequence, id and offset is as it should be."""
    log = open_log(sqlite_settings)
    sound(log)
    log.close()
    with apsw.Connection(f"{sqlite_settings.home}/log.db") as connection:
        swapped = connection.execute(
            "select a.rowid, a.offset, b.rowid, b.offset from events a join events b on a.topic = b.topic"
            " and a.partition = b.partition and b.offset = a.offset + 1 and a.subject <> b.subject"
            " where a.topic = 2").fetchone()
        assert swapped is not None
        first, low, second, high = swapped
        for row, offset in ((first, -1), (second, low), (first, high)):
            connection.execute("update events set offset = ? where rowid = ?", (offset, row))
    connection.close()
    audit = audited(sqlite_settings)
    assert faults(audit) == {"damaged record"} and audit.faults == 2


@pytest.mark.parametrize("form", [2, 3])
def test_log_of_an_earlier_format_is_read_and_goes_on_in_this_one(sqlite_settings: Settings, form: int) -> None:
    """Its checksums leave out the place, or are taken over other bytes."""
    log = open_log(sqlite_settings)
    sound(log)
    log.close()
    columns = f"rowid, topic, partition, offset, {COLUMNS}"
    with apsw.Connection(f"{sqlite_settings.home}/log.db") as connection:
        for row, topic, part, offset, *cells in connection.execute(f"select {columns} from events").fetchall():
            kept = earlier_checksums(Event(*cells), (topic, part, offset))[form == 2]
            connection.execute("update events set checksum = ? where rowid = ?", (kept, row))
        connection.pragma("user_version", form)
    connection.close()
    assert audited(sqlite_settings).faults == 0
    log = open_log(sqlite_settings)
    log.append(TRAJECTORIES, [event("later", 0, STARTED)]).result()
    log.close()
    assert audited(sqlite_settings).faults == 0
    with apsw.Connection(f"{sqlite_settings.home}/log.db") as connection:
        assert connection.pragma("user_version") == FORMAT
    connection.close()


def test_checksums_of_the_third_format_are_those_of_its_files() -> None:
    """As a file of it has them: what is worked out above must not change with the code."""
    there = Event("id", "source", "headrace.turn.generated.v1", "episode", 3, 1_700_000_000_000_000, b"\x80")
    assert earlier_checksums(there, (2, 1, 40)) == (2577836470, 2382388125)


def test_readers_get_past_rows_that_are_not_of_this_program(sqlite_settings: Settings) -> None:
    """The sink keeps them as dead letters; all else is read."""
    log = open_log(sqlite_settings)
    sound(log)
    log.close()
    with apsw.Connection(f"{sqlite_settings.home}/log.db") as connection:
        connection.execute(f"update events set id = cast(x'ff80' as text), source = '' where {_MINE} = 1;"
                           f"update events set time_us = 'noon' where {_MINE} = 3")
    connection.close()
    log = open_log(sqlite_settings)
    subscription, records = log.subscribe([TRAJECTORIES]), []
    while more := subscription.poll(0.0):
        records += more
    assert len(records) == 12 * 5 - 1 + 7
    wrong = [record for record in records if record.event is None]
    assert [(record.raw.key, record.raw.reason) for record in wrong if record.raw] == [
        (b"episode-5", "id is not UTF-8 (invalid start byte at byte 0)"),
        (b"episode-5", "time_us is not a whole number from 0")]
    assert wrong[0].raw is not None and wrong[0].raw.value == event("episode-5", 1, turn(0)).data
    log.close()


def test_damage_inside_the_file_is_told_and_the_rest_is_audited(sqlite_settings: Settings) -> None:
    log = open_log(sqlite_settings)
    sound(log, 60)
    log.close()
    path = Path(sqlite_settings.home) / "log.db"
    content = path.read_bytes()
    path.write_bytes(content[:-2 * 8192] + b"\xff" * 8192 + content[-8192:])
    audit = audited(sqlite_settings)
    assert "store" in faults(audit)
    path.write_bytes(b"garbage" * 5000)
    with pytest.raises(LogDamagedError):
        inspect_log(sqlite_settings)


def test_log_of_the_first_format_is_taken_over_and_its_events_are_read(sqlite_settings: Settings) -> None:
    log = open_log(sqlite_settings)
    sound(log)
    log.close()
    with apsw.Connection(f"{sqlite_settings.home}/log.db") as connection:
        connection.execute("alter table events drop column checksum")
        connection.pragma("user_version", 1)
    connection.close()
    log = open_log(sqlite_settings)
    log.append(TRAJECTORIES, [event("later", 0, STARTED)]).result()
    log.close()
    assert audited(sqlite_settings).faults == 0
    with apsw.Connection(f"{sqlite_settings.home}/log.db") as connection:
        assert connection.pragma("user_version") == FORMAT
        assert connection.execute("select count(*) from events where checksum is not null").get == 1
    connection.close()


# -- both: what a writer may do wrong ---------------------------------------------------------------------------------

def test_owner_whose_sequence_is_not_whole_is_told_once_an_episode(log: EventLog, log_settings: Settings) -> None:
    sound(log)
    log.append(TRAJECTORIES, [
        event("gap", 0, STARTED), event("gap", 2, turn(0)), event("gap", 3, turn(1)), event("gap", 4, turn(2)),
        event("back", 0, STARTED), event("back", 1, turn(0)), event("back", 2, turn(1)),
        event("back", 1, turn(9))._replace(id="another"),
        event("late", 3, turn(0)), event("nobody", 0, turn(0))]).result()
    audit = audited(log_settings)
    assert audit.counts["broken sequence", True] == 4 == audit.faults
    assert {(finding.episode, finding.detail.split(":")[0]) for finding in of(audit, "broken sequence")} == {
        ("gap", "the owner wrote 2 after 0"), ("back", "the owner wrote sequence 1 again after 2"),
        ("late", "the episode begins at sequence 3"), ("nobody", "the episode was never claimed")}
    assert audit.counts["fenced: gap", False] == 2


def test_payloads_and_types_are_judged(log: EventLog, log_settings: Settings) -> None:
    def bare(sequence: int, kind: str, data: bytes) -> Event:
        return Event(f"bare-{sequence}", "writer-1", kind, "bare", sequence, AT, data)

    unequal = turn(0).__class__(turn=0, context=b"", generated=pack_ids([1, 2]), logprobs=pack_logprobs([-1.0]),
                                started_at=AT, finished_at=AT)
    log.append(TRAJECTORIES, [
        event("bare", 0, STARTED), bare(1, wire_type("turn.generated"), b""),
        bare(2, wire_type("turn.generated"), b"\x81\xa4turn\xa1x"), event("bare", 3, turn(0, float("nan"))),
        event("bare", 4, unequal), bare(5, wire_type("mood.noted"), b"?"),
        bare(6, wire_type("turn.generated", 7), b"?"), bare(7, "com.example.ping", b"?"),
        event("bare", 8, CancelRequested(episode_id="x"))]).result()
    audit = audited(log_settings)
    assert audit.counts == {("schema violation", True): 4, ("unknown type", False): 2, ("foreign type", True): 1,
                            ("wrong topic", True): 1}
    details = [finding.detail for finding in of(audit, "schema violation")]
    assert "not finite" in details[2] and "one float32 is needed" in details[3]


# -- Kafka: messages sent past us -------------------------------------------------------------------------------------

@pytest.fixture
def send(kafka_settings: Settings) -> Callable[..., None]:
    """Puts a message into a topic as any other program could."""
    import kafka

    def put(subject: str, value: bytes | None, headers: list[tuple[str, bytes]], partition: int | None = None,
            topic: str = TRAJECTORIES) -> None:
        with kafka.KafkaProducer(bootstrap_servers=kafka_settings.log.removeprefix("kafka://")) as producer:
            place = partition_for(subject, 4) if partition is None else partition
            producer.send(topic, value, key=subject.encode(), headers=headers, partition=place,
                          timestamp_ms=AT // 1000).get(TIMEOUT_S)

    return put


def test_what_is_planted_in_kafka_is_found(kafka_settings: Settings, send: Callable[..., None]) -> None:
    log = open_log(kafka_settings)
    sound(log)
    again, fact = event("episode-3", 3, turn(1)), event("episode-3", 0, CancelRequested(episode_id="episode-3"))
    strange = event("episode-3", 4, turn(2))
    send("episode-3", again.data, to_headers(again))
    send("episode-3", fact.data, to_headers(fact), topic=REQUESTS)
    send("x1", strange.data, [header for header in to_headers(strange) if header[0] != "ce_id"])
    send("x2", strange.data, [])
    for name, other in (("ce_sequence", b"1e3"), ("ce_source", b"\xff")):
        send("x3", strange.data, list((dict(to_headers(strange)) | {name: other}).items()))
    typed = event("typed", 0, STARTED)
    send("typed", typed.data, to_headers(typed))
    send("typed", strange.data, to_headers(event("typed", 1, FINISHED)._replace(type="headrace.tool.called.v1")))
    send("typed", b"", to_headers(event("typed", 2, turn(0))))
    send("typed", None, to_headers(event("typed", 3, turn(0))))
    send("typed", strange.data, to_headers(event("typed", 4, turn(0))), (partition_for("typed", 4) + 1) % 4)
    log.close()
    audit = audited(kafka_settings)
    assert audit.counts["unreadable record", True] == 4
    assert {finding.detail for finding in of(audit, "unreadable record")} == {
        "header is missing at header ce_id", "header is missing at header ce_specversion",
        "header is not a sequence number at header ce_sequence: '1e3'",
        "not UTF-8 ('utf-8' codec can't decode byte 0xff in position 0: invalid start byte) at header ce_source: "
        "b'\\xff'"}
    assert audit.counts["duplicate id", True] == 1 == audit.counts["fact written again", False]
    assert audit.counts["schema violation", True] == 3
    assert audit.counts["wrong partition", True] == 1


def test_offsets_of_transactions_and_trimmed_beginnings_are_no_loss(kafka_settings: Settings) -> None:
    import kafka

    log = open_log(kafka_settings)
    sound(log)
    address = kafka_settings.log.removeprefix("kafka://")
    started = event("in-transactions", 0, STARTED)
    part = partition_for("in-transactions", 4)
    with kafka.KafkaProducer(bootstrap_servers=address, transactional_id="t") as producer:
        producer.init_transactions()
        for commit in (False, True):
            producer.begin_transaction()
            for number in range(1 if commit else 3):
                producer.send(TRAJECTORIES, started.data, key=b"in-transactions", headers=to_headers(started),
                              partition=part, timestamp_ms=number).get(TIMEOUT_S)
            (producer.commit_transaction if commit else producer.abort_transaction)()
    sequences = [event("in-transactions", number, turn(number)) for number in (1, 2)]
    log.append(TRAJECTORIES, sequences).result()
    audit = audited(kafka_settings)
    assert audit.faults == 0, audit.examples
    assert audit.counts["no record: transaction", False] == 3
    assert {finding.detail.split(": ")[1] for finding in of(audit, "no record: transaction")} == {
        "records of a transaction that was aborted", "mark at the end of a transaction"}
    with kafka.KafkaAdminClient(bootstrap_servers=address) as admin:
        admin.delete_records({kafka.TopicPartition(TRAJECTORIES, number): 2 for number in range(4)})
    audit = audited(kafka_settings)
    assert audit.faults == 0, audit.examples
    assert audit.counts["no record: trimmed", False] == 4
    log.close()


def test_flipped_byte_in_a_segment_of_the_broker_is_found(kafka_settings: Settings, broker) -> None:
    log = open_log(kafka_settings)
    sound(log)
    log.close()
    segments = sorted((Path(broker.folder) / "data").glob(f"{TRAJECTORIES}-0/*.log"))
    content = bytearray(segments[0].read_bytes())
    content[len(content.rstrip(b"\0")) - 20] ^= 0xFF
    with segments[0].open("r+b") as segment:
        segment.write(content)
    audit = audited(kafka_settings)
    assert faults(audit) == {"unreadable from here on"}
    (finding,) = of(audit, "unreadable from here on")
    assert finding.position is not None and finding.position[:2] == (TRAJECTORIES, 0)
    assert sum(one.events for one in audit.partitions if one.row.partition != 0) > 0


# -- memory -----------------------------------------------------------------------------------------------------------

class _Endless:
    """A log of 2,000 open episodes whose turns come interleaved, made up as it is read."""

    exactly_once = True
    episodes = 2_000

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def about(self) -> dict[str, str]:
        return {}

    def topics(self) -> list[TopicRow]:
        return [TopicRow(TRAJECTORIES, 1, "unlimited")]

    def partitions(self) -> list[PartitionRow]:
        return [PartitionRow(TRAJECTORIES, 0, 0, self.rounds * self.episodes, None)]

    def groups(self) -> list:
        return []

    def faults(self):
        return iter(())

    def scan(self, row: PartitionRow):
        started, offset = make_event(STARTED, subject="", source="w", time_us=AT), 0
        turned = make_event(turn(0), subject="", source="w", time_us=AT)
        for number in range(self.rounds):
            model = turned if number else started
            for episode in range(self.episodes):
                name = f"episode-{episode}"
                found = model._replace(subject=name, sequence=number, id=f"{name}-{number}")
                yield Scanned(Record(Position(TRAJECTORIES, 0, offset), found))
                offset += 1

    def close(self) -> None: ...


def test_memory_does_not_grow_with_the_log() -> None:
    def peak(rounds: int) -> int:
        audit = Audit(_Endless(rounds))
        tracemalloc.start()
        for _ in audit.run():
            pass
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert audit.faults == 0 and audit.partitions[0].events == rounds * 2_000
        return most

    short, long = peak(2), peak(16)
    assert long < short + (1 << 20), (short, long)


def test_examples_are_few_and_counts_are_whole(sqlite_settings: Settings) -> None:
    log = open_log(sqlite_settings)
    log.append(TRAJECTORIES, [event(f"nobody-{number}", 0, turn(0)) for number in range(50)]).result()
    log.close()
    audit = audited(sqlite_settings)
    assert audit.counts["broken sequence", True] == 50 and len(of(audit, "broken sequence")) == SHOWN
