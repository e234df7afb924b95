"""After chaos: does the lake hold what the log holds, once, judged as the rule of admission says?"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from artifacts import open_store
from consumers.sink import Sink
from consumers.verify import VerifyConsumer
from eventlog.log import EventLog
from lake import open_lake
from lake.content import content
from lake.lake import Lake
from schemas.admission import UNCLAIMED, Claim, admit
from schemas.envelope import Record
from schemas.settings import Settings
from schemas.topics import TOPICS, TRAJECTORIES
from tests.chaos.workers import scorer

_EVENTS = 'select topic, partition, "offset", id, data, admitted, reason from events'
_LETTERS = 'select topic, partition, "offset", data from dead_letters'
_SCORED = """
select e.episode_id, count(distinct s.score_id) as scores from raw_episodes e
left join scores s on s.episode_id = e.episode_id and s.cause = 'live'
where e.submission is not null group by 1 having count(distinct s.score_id) <> 1
"""


def settle(log: EventLog, settings: Settings) -> Lake:
    """Undisturbed at last: score what is finished, copy all into the lake."""
    store = open_store(settings)
    lake = open_lake(settings, store)
    VerifyConsumer(log, scorer(store), settings, lake=lake).run(threading.Event(), until_idle=True)
    Sink(log, lake, store, settings, member="sink-one").run(threading.Event(), until_idle=True)
    return lake


def read(log: EventLog) -> list[Record]:
    """Everything, in the order of each partition."""
    reader, ends, found = log.subscribe(TOPICS), log.ends(TOPICS), list[Record]()
    try:
        while any(part not in reader.assignment() or reader.position(part) < end for part, end in ends.items()):
            found += reader.poll(0.5)
    finally:
        reader.close()
    return sorted(found, key=lambda record: record.position)


def problems(log: EventLog, lake: Lake, settings: Settings) -> Iterator[str]:
    records = read(log)
    yield from _contiguous(log, records)
    yield from _same(records, lake)
    yield from _acknowledged(records, Path(settings.home) / "acks")
    yield from lake.verify()
    for row in lake.sql(_SCORED).to_pylist():
        yield f"episode {row['episode_id']} has {row['scores']} live scores"
    yield from _undisturbed(log, lake, settings)


def _contiguous(log: EventLog, records: list[Record]) -> Iterator[str]:
    told = Counter(record.position[:2] for record in records)
    if len({record.position for record in records}) != len(records):
        yield "the log hands out a position twice"
    for part, end in log.ends(TOPICS).items():
        if told[part] != end:
            yield f"{part[0]}-{part[1]}: {told[part]} records in the log, which ends at {end}"


def _same(records: list[Record], lake: Lake) -> Iterator[str]:
    """The multiset of rows is that of records, and each is judged alike."""
    wanted: Counter[tuple[object, ...]] = Counter(_judged(records))
    found: Counter[tuple[object, ...]] = Counter(
        (row["topic"], row["partition"], row["offset"], row["id"], row["data"], row["admitted"],
         row["reason"].replace("schema_violation", "")) for row in lake.sql(_EVENTS).to_pylist())
    for name, rows in (("lacks", wanted - found), ("has too many of", found - wanted)):
        for row in list(rows)[:5]:
            yield f"the lake {name} {row[:4]} {row[5:]}"
    letters = {(row["topic"], row["partition"], row["offset"]): row["data"] for row in lake.sql(_LETTERS).to_pylist()}
    for record in records:
        if record.event is None and record.raw is not None and letters.get(record.position) != record.raw.value:
            yield f"no dead letter with the bytes of {record.position}"


def _judged(records: list[Record]) -> Iterator[tuple[object, ...]]:
    claims: dict[str, Claim] = {}
    for position, event, _ in records:
        if event is None:
            continue
        admitted, reason = True, ""
        if position.topic == TRAJECTORIES:
            claims[event.subject], admitted, reason = admit(claims.get(event.subject, UNCLAIMED), event)
        yield (*position, event.id, event.data, admitted, reason)


def _acknowledged(records: list[Record], folder: Path) -> Iterator[str]:
    there = {record.event.id for record in records if record.event}
    for path in sorted(folder.iterdir()):
        for one in path.read_text().split("\n")[:-1]:
            if one not in there:
                yield f"acknowledged and not in the log: {one} ({path.name})"


def _undisturbed(log: EventLog, lake: Lake, settings: Settings) -> Iterator[str]:
    with TemporaryDirectory(prefix="headrace-chaos-") as home:
        calm = msgspec.structs.replace(settings, home=home, sink_flush_rows=20_000)
        store = open_store(settings)
        other = open_lake(calm, store)
        Sink(log, other, store, calm, member="calm").run(threading.Event(), until_idle=True)
        mine, theirs = content(lake), content(other)
        for table in mine:
            if mine[table] != theirs[table]:
                yield f"{table}: {mine[table]}, and in a lake that nobody disturbed {theirs[table]}"
