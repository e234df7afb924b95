"""What exactly-once costs the sink, whether its commits stay fast as the lake grows, and how much memory it needs.

    python benchmarks/sink.py [--quick] [--seed S] [--only throughput|commits|memory]

The bare consumer is `kafka-python` and `pyarrow` alone: it decodes the same payloads and writes the same rows with the
same encodings to plain Parquet files of as many rows. It checks nothing, keeps no position, and admits every event.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from harness import SPAWN, Memory, Story, answer, interleaved, kafka_module, parser, quantile, ratio, scratch

from artifacts import open_store
from consumers.sink import Sink
from eventlog import open_log
from lake import open_lake
from lake.files import parquet_options
from lake.lake import Lake
from schemas.envelope import Event, Position, Record
from schemas.events import EpisodeFinished, EpisodeStarted, ToolCalled, ToolReturned, TurnGenerated
from schemas.head import Heads
from schemas.settings import Settings
from schemas.tables import TABLES
from schemas.topics import TRAJECTORIES

SMALL_BYTES = 1 << 20
PARTITION = (TRAJECTORIES, 0)
LONG = 50
"""Samples of memory from which growth is judged."""


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--only", choices=("throughput", "commits", "memory"))
    chosen = options.parse_args()
    quick, seed, held = chosen.quick, chosen.seed, []
    if chosen.only in (None, "throughput"):
        held += throughput(seed, *((40, 256, 3) if quick else (40, 512, 7)))
    if chosen.only in (None, "commits"):
        held += commits(seed, *((200, 40) if quick else (10_000, 100)))
    if chosen.only in (None, "memory"):
        held += memory(seed, *((1_000, 20) if quick else (10_000, 200)))
    return 0 if all(held) else 1


# Throughput.


def throughput(seed: int, turns: int, episodes: int, rounds: int) -> list[bool]:
    question = "sink, one process, events of 1.7 kB, broker on the same cores, against a bare consumer to Parquet"
    module = kafka_module()
    if why := module.missing():
        return [answer(question, None, "x", ">= 0.6", f"not measured: {why}", 0)]
    with scratch() as home, module.Broker(Path(home) / "broker") as broker:
        settings = Settings(home=home, log=broker.log_setting)
        log = open_log(settings)
        events = list(Story(seed, context=200, generated=150, text=500, output=1400).lives(episodes, turns, 128))
        size = sum(len(event.data) for event in events) / len(events)
        for start in range(0, len(events), 1000):
            log.append(TRAJECTORIES, events[start:start + 1000]).result()
        log.close()
        cpu: dict[str, list[float]] = {"sink": [], "bare": []}
        kept: list[dict[str, Any]] = []

        def side(name: str, work: Callable[..., dict[str, Any]]) -> Callable[[], float]:
            def run() -> float:
                with scratch() as folder:
                    told = _in_process(work, broker.log_setting, folder, len(events))
                assert told["rows"] >= len(events), told
                cpu[name].append(told["cpu_s"])
                kept.append(told)
                return float(told["wall_s"])

            return run

        taken = interleaved(rounds, {"sink": side("sink", through_sink), "bare": side("bare", through_bare)})
    rates = {name: len(events) / quantile(values, 0.5) for name, values in taken.items()}
    spent = {name: 1e6 * quantile(values, 0.5) / len(events) for name, values in cpu.items()}
    told = (f"{len(events)} events of {size:.0f} bytes; bare {rates['bare']:.0f}/s with {spent['bare']:.0f} us of "
            f"processor time each, sink {rates['sink']:.0f}/s with {spent['sink']:.0f} us; "
            f"ratio of processor time {ratio(cpu['bare'], cpu['sink']):.2f}")
    held = [answer(question, ratio(taken["bare"], taken["sink"]), "x", ">= 0.6", told, rounds),
            answer("sink, one process, events a second", round(rates["sink"]), "events/s", None, told, rounds)]
    tables = next(one["tables"] for one in kept if "tables" in one)
    for name, (rows, bytes_) in tables.items():
        held.append(answer(f"table {name} after compression", bytes_ / rows, "bytes/row", None,
                           f"{rows} rows, {bytes_} bytes; payloads of {size:.0f} bytes an event", 1))
    return held


def _in_process(work: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    ours, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=_reporting, args=(theirs, work, arguments))
    process.start()
    theirs.close()  # So that the end of the process ends the wait.
    try:
        told: dict[str, Any] = ours.recv()
        return told
    finally:
        process.join(60)


def _reporting(pipe: Connection, work: Callable[..., dict[str, Any]], arguments: tuple[Any, ...]) -> None:
    pipe.send(work(*arguments))


def _clocks(action: Callable[[], object]) -> dict[str, Any]:
    wall, cpu = time.perf_counter(), time.process_time()
    action()
    return {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}


def through_sink(log_setting: str, home: str, count: int) -> dict[str, Any]:
    import deltalake  # noqa: F401  What is loaded once in the life of a sink is no part of its rate.

    settings = Settings(home=home, log=log_setting)
    artifacts = open_store(settings)
    log, lake = open_log(settings), open_lake(settings, artifacts)
    told = _clocks(lambda: Sink(log, lake, artifacts, settings).run(threading.Event(), until_idle=True))
    log.close()
    folders = {name: Path(home) / "lake" / name for name in TABLES}
    tables = {name: _size(folder) for name, folder in folders.items() if folder.exists()}
    return told | {"rows": tables["events"][0], "tables": tables}


def _size(folder: Path) -> tuple[int, int]:
    """Rows and bytes of the live files of a table."""
    from deltalake import DeltaTable

    actions = pa.table(DeltaTable(folder).get_add_actions(flatten=True)).to_pylist()
    return sum(one["num_records"] for one in actions), sum(one["size_bytes"] for one in actions)


def through_bare(log_setting: str, home: str, count: int) -> dict[str, Any]:
    bare = BareConsumer(log_setting.removeprefix("kafka://"), Path(home))
    return _clocks(lambda: bare.run(count)) | {"rows": bare.rows}


class BareConsumer:
    """Reads a topic, writes the rows of `events`, `turns`, `tool_calls` and `episodes`."""

    FLUSH = 20_000

    def __init__(self, address: str, folder: Path) -> None:
        import kafka
        import msgspec

        self._consumer = kafka.KafkaConsumer(
            TRAJECTORIES, bootstrap_servers=address, group_id=f"bare-{time.time_ns()}", enable_auto_commit=False,
            auto_offset_reset="earliest", isolation_level="read_committed", max_partition_fetch_bytes=8 << 20,
            fetch_max_bytes=33 << 20, metrics_enabled=False)
        self._decode = {f"headrace.{payload.NAME}.v1": msgspec.msgpack.Decoder(payload).decode for payload in (
            TurnGenerated, ToolCalled, ToolReturned, EpisodeStarted, EpisodeFinished)}
        self._folder = folder
        self._started: dict[str, EpisodeStarted] = {}
        self._calls: dict[tuple[str, str], ToolCalled] = {}
        self._versions: dict[str, list[int]] = {}
        self._buffers: dict[str, list[tuple[Any, ...]]] = {
            name: [] for name in ("turns", "tool_calls", "episodes", "events")}
        self.rows = self._files = 0

    def run(self, count: int) -> None:
        seen = pending = 0
        while seen < count:
            for messages in self._consumer.poll(timeout_ms=50, max_records=5000).values():
                for message in messages:
                    self._take(message)
                seen, pending = seen + len(messages), pending + len(messages)
            if pending >= self.FLUSH:
                pending = self._write()
        self._write()
        self._consumer.close(autocommit=False)

    def _take(self, message: Any) -> None:
        headers = dict(message.headers)
        kind, episode = headers["ce_type"].decode(), message.key.decode()
        payload = self._decode[kind](message.value)
        position = (message.topic, message.partition, message.offset)
        match payload:
            case TurnGenerated():
                versions = [version for version, _ in payload.versions]
                self._versions.setdefault(episode, []).extend(versions)
                self._buffers["turns"].append((
                    episode, payload.turn, payload.segment, 1, payload.context, payload.generated, payload.logprobs,
                    min(versions), max(versions), payload.text, payload.finish_reason, payload.started_at,
                    payload.finished_at, payload.prefix, *position))
            case ToolCalled():
                self._calls[episode, payload.call_id] = payload
            case ToolReturned():
                called = self._calls.pop((episode, payload.call_id))
                self._buffers["tool_calls"].append((
                    episode, payload.turn, payload.call_id, called.tool, called.arguments, payload.status,
                    payload.exit_code, payload.attempt, payload.output, payload.output_bytes, payload.truncated,
                    payload.workspace, called.at, payload.at, payload.duration_s, *position))
            case EpisodeStarted():
                self._started[episode] = payload
            case EpisodeFinished():
                began, versions = self._started[episode], self._versions.pop(episode, [None])
                self._buffers["episodes"].append((
                    episode, began.run_id, began.group_id, began.task_id, began.kind, began.purpose, began.policy,
                    min(versions), max(versions), 1, payload.termination, payload.failure_kind, payload.turns,
                    payload.tool_calls, payload.context_token_count, payload.generated_token_count, payload.answer,
                    payload.workspace, payload.submission, began.at, payload.at, began.sample_index,
                    began.task_digest, began.requested_at, *position))
        name, _, version = kind.removeprefix("headrace.").rpartition(".v")
        self._buffers["events"].append((
            headers["ce_id"].decode(), name, int(version), episode, int(headers["ce_sequence"]),
            headers["ce_source"].decode(), self._started[episode].run_id, *position, message.timestamp * 1000, True, "",
            message.value))

    def _write(self) -> int:
        for name, rows in self._buffers.items():
            if rows:
                schema = TABLES[name]
                columns = [_array(field.type, values)
                           for field, values in zip(schema, zip(*rows, strict=True), strict=True)]
                self._files += 1
                path = self._folder / f"{name}-{self._files}.parquet"
                with pq.ParquetWriter(path, schema, **parquet_options(schema)) as writer:
                    writer.write_table(pa.table(columns, schema=schema))
                self.rows += len(rows) * (name == "events")
                rows.clear()
        return 0


def _array(kind: pa.DataType, values: tuple[Any, ...]) -> pa.Array:
    if not pa.types.is_list(kind):
        return pa.array(values, type=kind)
    offsets = np.cumsum([0, *(len(value) // 4 for value in values)], dtype=np.int32)
    items = np.frombuffer(b"".join(values), dtype="<i4" if pa.types.is_int32(kind.value_type) else "<f4")
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(items), type=kind)


# Commits.


def commits(seed: int, count: int, last: int) -> list[bool]:
    """The last commits of an old lake take turns with the first ones of a young lake. Those in between, which only make
    it old, do not wait for the disk."""
    with scratch() as home, scratch() as other:
        old, young = Commits(seed, Path(home)), Commits(seed, Path(other))
        for _ in range(last):
            old.one()
        with unsynced():
            for _ in range(count - 2 * last):
                old.one()
        both = interleaved(last, {"old": old.one, "young": young.one})
    sets = (both["young"], both["old"], old.waits[:last])
    young_ms, old_ms, first_ms = (1e3 * quantile(waits, 0.5) for waits in sets)
    told = (f"p50 of the first {last} of a new lake, side by side: {young_ms:.1f} ms; of the last: {old_ms:.1f} ms; "
            f"of its own first: {first_ms:.1f} ms; maintenance adds {1e3 * old.maintained_s / count:.1f} ms on "
            f"average, at most {1e3 * old.longest_s:.0f} ms")
    question = f"commit p50 after {count} commits, against the first {last}"
    return [answer(question, old_ms / young_ms, "x", "<= 2", told, last),
            answer(f"live small files of a table during {count} commits, at most", old.small_files, "files", "<= 64",
                   f"under {SMALL_BYTES >> 20} MiB; {old.files} live files of all sizes at the end", count)]


def _nothing(fd: Any) -> None:
    pass


@contextmanager
def unsynced() -> Iterator[None]:
    synced = os.fsync
    os.fsync = _nothing
    try:
        yield
    finally:
        os.fsync = synced


class Commits:
    """Flushes of 20 turns, as a sink commits them: rows and events, then maintenance. So many of them differ: rows that
    come again and again would be compressed as no lake's are."""

    ROWS, DIFFERENT = 20, 50

    def __init__(self, seed: int, home: Path) -> None:
        from consumers.columns import RowBuffer
        from consumers.folding import Folding

        settings = Settings(home=str(home))
        store = open_store(settings)
        self._lake, self._folder = open_lake(settings, store), home / "lake"
        self._lake.bind("benchmark")
        folding, buffer = Folding(store), RowBuffer()
        events = Story(seed, context=130, generated=90, text=300).turns((1 + self.DIFFERENT) * self.ROWS, self.ROWS)
        self._offset, self._tables = 0, list[dict[str, pa.Table]]()
        for offset, event in enumerate(events):
            rows = folding.rows(Record(Position(*PARTITION, offset), event))
            if offset >= self.ROWS:  # Not the starts: every flush is alike.
                buffer.add(rows)
            if offset >= self.ROWS and offset % self.ROWS == self.ROWS - 1:
                self._tables.append(buffer.tables())
                buffer.clear()
        self.waits: list[float] = []
        self.maintained_s = self.longest_s = 0.0
        self.small_files = self.files = 0

    def one(self) -> float:
        end = self._offset + self.ROWS
        offsets = pa.array(range(self._offset, end))
        tables = self._tables[len(self.waits) % len(self._tables)]
        rows = {name: table.set_column(table.column_names.index("offset"), "offset", offsets)
                for name, table in tables.items()}
        began = time.perf_counter()
        self._lake.commit(rows, {PARTITION: self._offset}, {PARTITION: end})
        committed = time.perf_counter()
        self._lake.maintain()
        spent = time.perf_counter() - committed
        self.maintained_s, self.longest_s = self.maintained_s + spent, max(self.longest_s, spent)
        self._offset = end
        self.waits.append(committed - began)
        if len(self.waits) % 10 == 0:
            self._count_files()
        return committed - began

    def _count_files(self) -> None:
        from deltalake import DeltaTable

        for name in ("turns", "events"):
            sizes = pa.table(DeltaTable(self._folder / name).get_add_actions())["size_bytes"].to_pylist()
            self.small_files = max(self.small_files, sum(size < SMALL_BYTES for size in sizes))
            self.files = len(sizes)


# Memory.


def memory(seed: int, episodes: int, turns: int) -> list[bool]:
    """All episodes are open at once: a turn of each, then the next turn of each. Sink and reader follow meanwhile."""
    with scratch() as home:
        settings = Settings(home=home)
        open_log(settings).close()
        count = episodes * (turns + 1)
        workers = {name: _start(work, settings, count) for name, work in (("sink", _sinking), ("log reader", _reading))}
        log = open_log(settings)
        story = Story(seed, context=10, generated=10, text=60)
        _write_all(log, story, episodes, turns)
        samples = {name: _told(*worker) for name, worker in workers.items()}
        log.close()
        samples["lake reader"] = _told(*_start(_lake_reading, settings, count))
    shape = f"{episodes} episodes of {turns} turns, interleaved"
    return [_answer_memory(f"memory of the {name}, {shape}", sampled) for name, sampled in samples.items()]


def _write_all(log: Any, story: Story, episodes: int, turns: int) -> None:
    futures, batch = [], []

    def send(event: Event) -> None:
        batch.append(event)
        if len(batch) == 500:
            futures.append(log.append(TRAJECTORIES, tuple(batch)))
            batch.clear()
            if len(futures) > 20:
                futures.pop(0).result()

    for _ in range(episodes):
        send(story.begin())
    for _ in range(turns):
        for name in story.names:
            send(story.turn(name))
    futures.append(log.append(TRAJECTORIES, tuple(batch)))
    for future in futures:
        future.result()


def _answer_memory(question: str, samples: list[float]) -> bool:
    """Flat: the last quarter of the time needs no more than a quarter above what the second one did."""
    if len(samples) < LONG:
        return answer(question, round(max(samples)), "MiB", "<= 1024", "greatest; too short to see growth",
                      len(samples))
    quarter = len(samples) // 4
    early, late = quantile(samples[quarter:2 * quarter], 0.5), quantile(samples[-quarter:], 0.5)
    flat = late <= 1.25 * early
    return answer(question, round(max(samples)), "MiB", "<= 1024",
                  f"greatest; median of the second quarter {early:.0f}, of the last {late:.0f}: "
                  f"{'flat' if flat else 'it grows'}", len(samples), also=flat)


def _start(work: Callable[..., None], settings: Settings, count: int) -> tuple[Any, Any]:
    ours, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=_watched, args=(theirs, work, settings, count))
    process.start()
    theirs.close()
    return process, ours


def _told(process: Any, pipe: Any) -> list[float]:
    samples: list[float] = pipe.recv()
    process.join(60)
    return samples


def _watched(pipe: Connection, work: Callable[..., None], settings: Settings, count: int) -> None:
    watch = Memory()
    work(settings, count)
    pipe.send(watch.stop())


def _sinking(settings: Settings, count: int) -> None:
    artifacts = open_store(settings)
    log, lake = open_log(settings), open_lake(settings, artifacts)
    stop = threading.Event()
    watcher = threading.Thread(target=_stop_at, args=(lake, count, stop))
    watcher.start()
    Sink(log, lake, artifacts, settings).run(stop)
    watcher.join()
    log.close()


def _stop_at(lake: Lake, count: int, stop: threading.Event) -> None:
    while sum(lake.positions().values()) < count:
        time.sleep(0.2)
    stop.set()


def _reading(settings: Settings, count: int) -> None:
    """As every service reads: admission and the constant-size fold of all episodes."""
    log, heads, seen = open_log(settings), Heads(), 0
    subscription = log.subscribe([TRAJECTORIES])
    while seen < count:
        for record in subscription.poll(0.1):
            assert record.event is not None
            seen += heads.see(record.event).admitted
    log.close()


def _lake_reading(settings: Settings, count: int) -> None:
    """Every row of `turns`, token columns and all, through SQL."""
    lake = open_lake(settings, open_store(settings))
    for batch in lake.batches("select * from turns"):
        assert batch.num_rows


if __name__ == "__main__":
    sys.exit(main())
