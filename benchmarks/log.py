"""What the log costs beside the bare library under it: appends to SQLite and to Kafka, reads from Kafka, and the size
of a turn.

    python benchmarks/log.py [--quick] [--seed S] [--rounds N]

Embedded: 2 kB events, batches of 100, every batch durable before the next. `apsw` writes the same rows into the same
table with the same indexes, settings and transactions. Kafka: `kafka-python` with the same settings sends and reads the
same bytes with headers, keys and partitions made beforehand, and looks at none of them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import apsw
from harness import Story, answer, interleaved, kafka_module, parser, quantile, ratio, scratch, timed

from eventlog import open_log
from schemas.codec import make_event
from schemas.envelope import Event, to_headers
from schemas.events import TurnGenerated
from schemas.settings import Settings
from schemas.topics import TRAJECTORIES, partition_for

BATCH = 100
EVENT_BYTES = 2000
PARTITIONS = 4
MESSAGE_BYTES = 33 << 20


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, help="instead of 9 (3 with --quick)")
    chosen = options.parse_args()
    rounds = chosen.rounds or (3 if chosen.quick else 9)
    batches = _batches(chosen.seed, 100 if chosen.quick else 300)
    held = [turn_bytes(chosen.seed), *embedded(batches, rounds), *on_kafka(batches, rounds)]
    return 0 if all(held) else 1


def _batches(seed: int, count: int) -> list[list[Event]]:
    events = Story(seed, context=130, generated=90, text=300).turns(count * BATCH, 128)
    return [events[start:start + BATCH] for start in range(0, len(events), BATCH)]


def turn_bytes(seed: int) -> bool:
    """The largest that all else in a turn may be: every number at its limit, several weight versions."""
    at, most = 1_800_000_000_000_000, 2**31
    overheads = []
    for generated, context, text in ((0, 0, 0), (1, 1, 1), (90, 130, 300), (2000, 4000, 8000), (100_000, 200_000, 10)):
        made = Story(seed, context, generated, text).turn_payload(0)
        versions = [(most, generated)] if generated < 2 else [(most, 1), (most + 1, generated - 1)]
        payload = TurnGenerated(
            turn=most, segment=most, context=made.context, generated=made.generated, logprobs=made.logprobs,
            versions=versions, prefix=made.prefix, text=made.text, finish_reason="length",
            sampler="temperature=0.123456 top_p=0.123456 top_k=123456", started_at=at, finished_at=at)
        data = make_event(payload, subject="e", source="s", time_us=at).data
        overheads.append(len(data) - 8 * generated - 4 * context - len(made.text.encode()))
    return answer("a `turn.generated` value beyond 8 bytes a generated token, 4 a context token and its text, at most",
                  max(overheads), "bytes", "<= 400", f"0 to 300,000 tokens: {overheads}", len(overheads))


def embedded(batches: Sequence[Sequence[Event]], rounds: int) -> list[bool]:
    count = len(batches) * BATCH

    def through_log() -> float:
        return _through_log(batches, one_by_one)

    taken = interleaved(rounds, {"log": through_log, "apsw": lambda: _through_apsw(batches),
                                 "piped": lambda: _through_log(batches, piped)})
    bare = count / quantile(taken["apsw"], 0.5)
    rate = count / quantile(taken["log"], 0.5)
    ends = f"raw apsw: {bare:.0f}/s, the log: {rate:.0f}/s"
    return [
        answer("embedded log, durable appends of 100 events of 2 kB, against raw apsw",
               ratio(taken["apsw"], taken["log"]), "x", ">= 0.7", ends, rounds),
        answer("embedded log, the same appends without waiting in between", count / quantile(taken["piped"], 0.5),
               "events/s", None, ends, rounds)]


def one_by_one(append: Callable[[Sequence[Event]], Any], batches: Sequence[Sequence[Event]]) -> None:
    for batch in batches:
        append(batch).result()


def piped(append: Callable[[Sequence[Event]], Any], batches: Sequence[Sequence[Event]]) -> None:
    for future in [append(batch) for batch in batches]:
        future.result()


def _through_log(batches: Sequence[Sequence[Event]], way: Callable[..., None]) -> float:
    with scratch() as home:
        log = open_log(Settings(home=home, log_partitions=PARTITIONS))
        try:
            return timed(lambda: way(lambda batch: log.append(TRAJECTORIES, batch), batches))
        finally:
            log.close()


def _through_apsw(batches: Sequence[Sequence[Event]]) -> float:
    with scratch() as folder:
        connection = apsw.Connection(str(Path(folder) / "raw.db"))
        for name, value in (("page_size", 8192), ("journal_mode", "wal"), ("synchronous", "full"),
                            ("cache_size", -16384)):
            connection.pragma(name, value)
        connection.execute(
            "create table heads(topic integer, partition integer, next_offset integer,"
            " primary key (topic, partition)) without rowid;"
            "create table events(topic integer not null, partition integer not null, offset integer not null,"
            " id text not null, source text not null, type text not null, subject text not null,"
            " sequence integer not null, time_us integer not null, data blob not null);"
            "create unique index by_offset on events(topic, partition, offset);"
            "create unique index by_id on events(topic, id)")
        heads = [0] * PARTITIONS
        connection.executemany("insert into heads values (2, ?, 0)", [(part,) for part in range(PARTITIONS)])

        def write(batch: Sequence[Event]) -> None:
            rows = []
            for event in batch:
                part = partition_for(event.subject, PARTITIONS)
                rows.append((2, part, heads[part], *event))
                heads[part] += 1
            connection.execute("begin immediate")
            connection.executemany("insert into events values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
            connection.executemany("update heads set next_offset = ? where topic = 2 and partition = ?",
                                   [(offset, part) for part, offset in enumerate(heads)])
            connection.execute("commit")

        taken = timed(lambda: [write(batch) for batch in batches])
        connection.close()
        return taken


def on_kafka(batches: Sequence[Sequence[Event]], rounds: int) -> list[bool]:
    append = "Kafka, append through the log against bare kafka-python"
    read = "Kafka, read through the log against bare kafka-python"
    module = kafka_module()
    if why := module.missing():
        return [answer(question, None, "x", ">= 0.85", f"not measured: {why}", 0) for question in (append, read)]
    with scratch() as home, module.Broker(Path(home) / "broker") as broker:
        log = open_log(Settings(home=home, log=broker.log_setting, log_partitions=PARTITIONS))
        try:
            return [_appends(append, log, broker.address, batches, rounds),
                    _reads(read, log, broker.address, batches, rounds)]
        finally:
            log.close()


def _appends(question: str, log: Any, address: str, batches: Sequence[Sequence[Event]], rounds: int) -> bool:
    import kafka

    producer = kafka.KafkaProducer(
        bootstrap_servers=address, enable_idempotence=True, acks="all", compression_type="zstd", linger_ms=5,
        batch_size=1 << 20, max_request_size=MESSAGE_BYTES, delivery_timeout_ms=60_000, request_timeout_ms=15_000,
        metrics_enabled=False)
    messages = [(event.subject.encode(), event.data, to_headers(event), partition_for(event.subject, PARTITIONS),
                 event.time_us // 1000) for batch in batches for event in batch]

    def bare() -> None:
        sent = [producer.send(TRAJECTORIES, value=data, key=key, headers=headers, partition=partition, timestamp_ms=at)
                for key, data, headers, partition, at in messages]
        for future in sent:
            future.get(60)

    def ours() -> None:
        piped(lambda batch: log.append(TRAJECTORIES, batch), batches)

    for side in (bare, ours):
        side()
    cpu: dict[str, list[float]] = {"bare": [], "log": []}
    taken = interleaved(rounds, {"bare": _with_cpu(bare, cpu["bare"]), "log": _with_cpu(ours, cpu["log"])})
    producer.close()
    return _answer_kafka(question, len(messages), taken, cpu, rounds)


def _with_cpu(action: Callable[[], object], cpu: list[float]) -> Callable[[], float]:
    def run() -> float:
        before = time.process_time()
        taken = timed(action)
        cpu.append(time.process_time() - before)
        return taken

    return run


def _answer_kafka(question: str, count: int, taken: dict[str, list[float]], cpu: dict[str, list[float]],
                  rounds: int) -> bool:
    rates = {side: count / quantile(values, 0.5) for side, values in taken.items()}
    spent = {side: 1e6 * quantile(values, 0.5) / count for side, values in cpu.items()}
    told = ", ".join(f"{side} {rates[side]:.0f}/s with {spent[side]:.1f} us of processor time each" for side in rates)
    return answer(question, ratio(taken["bare"], taken["log"]), "x", ">= 0.85",
                  f"{told}; ratio of processor time {ratio(cpu['bare'], cpu['log']):.2f}", rounds)


def _reads(question: str, log: Any, address: str, batches: Sequence[Sequence[Event]], rounds: int) -> bool:
    """From the first offset on, of what the appends left on the topic: at most as much as two of them wrote."""
    import kafka

    ends = log.ends([TRAJECTORIES])
    count = min(sum(ends.values()), 2 * BATCH * len(batches))

    def bare() -> float:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=address, enable_auto_commit=False, auto_offset_reset="earliest",
            isolation_level="read_committed", max_partition_fetch_bytes=8 << 20, fetch_max_bytes=MESSAGE_BYTES,
            metrics_enabled=False)
        consumer.assign([kafka.TopicPartition(*partition) for partition in ends])
        taken = timed(lambda: _until(count, lambda: sum(
            len(messages) for messages in consumer.poll(timeout_ms=100, max_records=5000).values())))
        consumer.close(autocommit=False)
        return taken

    def ours() -> float:
        subscription = log.subscribe([TRAJECTORIES])
        taken = timed(lambda: _until(count, lambda: len(subscription.poll(0.1, 5000))))
        subscription.close()
        return taken

    cpu: dict[str, list[float]] = {"bare": [], "log": []}
    for side in (bare, ours):
        side()
    taken = interleaved(rounds, {name: _cpu_around(side, cpu[name]) for name, side in (("bare", bare), ("log", ours))})
    return _answer_kafka(question, count, taken, cpu, rounds)


def _cpu_around(side: Callable[[], float], cpu: list[float]) -> Callable[[], float]:
    def run() -> float:
        before = time.process_time()
        taken = side()
        cpu.append(time.process_time() - before)
        return taken

    return run


def _until(count: int, read: Callable[[], int]) -> None:
    while count > 0:
        count -= read()


if __name__ == "__main__":
    sys.exit(main())
