"""The processes that chaos kills: `python -m tests.chaos.workers ROLE HOME LOG STORAGE NAME SEED`, with role writer,
sink or verify. None ends by itself.

A writer notes the ids of what was acknowledged, after the acknowledgement, in a file that outlives it. Each makes a
file NAME.ready in the home when it is at work.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from artifacts import open_store
from artifacts.store import ArtifactStore
from consumers.sink import Sink
from consumers.verify import VerifyConsumer
from eventlog import open_log
from eventlog.log import EventLog
from eventlog.sqlite import SqliteLog
from lake import open_lake
from schemas.envelope import Event, wire_type
from schemas.errors import LogError
from schemas.events import EpisodeResumed, Payload, ScoreRecorded, ToolCalled, ToolReturned
from schemas.ids import digest, new_id, now_us, stable_id
from schemas.settings import Settings
from schemas.topics import SCORES, TRAJECTORIES
from tests.consumers.episodes import event, finished, started, turn
from verifiers.scoring import Request, Scorer

LEASE_S = 1.5
SUBMISSION = digest(b"submission")
_RETRY_S = 0.2
_PAUSE_S = 0.05


def settings_of(home: str, log: str, storage: str = "") -> Settings:
    """`storage`: URL under which lake and artifacts lie; empty: in the home."""
    return Settings(home=home, log=log, sink_flush_rows=50, sink_flush_interval_s=0.05, sandbox_backend="process",
                    lake=storage and f"{storage}/lake", artifacts=storage and f"{storage}/artifacts")


def open_chaos_log(settings: Settings) -> EventLog:
    if settings.log == "sqlite":
        return SqliteLog(Path(settings.home) / "log.db", settings.log_partitions, LEASE_S)
    return open_log(settings)


def scorer(store: ArtifactStore) -> Scorer:
    """Gives every submission a full reward at once."""
    store.put(b"submission")
    evidence = store.put(b"evidence")

    def judge(request: Request) -> ScoreRecorded:
        return ScoreRecorded(
            score_id=stable_id("score", request.episode_id), episode_id=request.episode_id, evidence=evidence,
            submission=request.submission, verifier="tools", verifier_digest=digest(b"v"), status="ok", reward=1.0,
            cause="live", run_id=request.run_id, started_at=now_us(), finished_at=now_us())

    return judge


def writer(settings: Settings, name: str, seed: int) -> None:
    rng, log = random.Random(seed), open_chaos_log(settings)
    acks = Path(settings.home) / "acks"
    acks.mkdir(exist_ok=True)
    with (acks / f"{name}-{seed}").open("ab", buffering=0) as noted:
        while True:
            for topic, events in batches(rng, f"{name}/{seed}"):
                _append(log, topic, events)
                noted.write("".join(f"{one.id}\n" for one in events).encode())
            ready(settings, name)
            time.sleep(rng.uniform(0, _PAUSE_S))


def ready(settings: Settings, name: str) -> None:
    (Path(settings.home) / f"{name}.ready").touch()


def _append(log: EventLog, topic: str, events: list[Event]) -> None:
    """Again and again with the same ids: after a failure nobody knows whether it landed."""
    while True:
        try:
            log.append(topic, events).result()
            return
        except LogError as wrong:
            print(f"append failed, again: {wrong}", file=sys.stderr)
            time.sleep(_RETRY_S)


def batches(rng: random.Random, source: str) -> Iterator[tuple[str, list[Event]]]:
    """A few episodes at once, interleaved, and what goes wrong around them."""
    streams = [episode(rng, source) for _ in range(rng.randrange(1, 4))]
    mixed: list[Event] = []
    while streams:
        stream = rng.choice(streams)
        mixed += stream[:1]
        del stream[:1]
        streams = [one for one in streams if one]
    cut = rng.randrange(len(mixed))
    yield TRAJECTORIES, mixed[:cut + 1]
    yield TRAJECTORIES, mixed[cut + 1:] or [zombie(mixed[0])]
    if rng.random() < 0.1:
        yield SCORES, [mixed[0]._replace(id=new_id(), type=wire_type("score.recorded"), data=b"\x81\xa1x\xc0")]


def episode(rng: random.Random, source: str) -> list[Event]:
    """A stream of one episode, sometimes taken over, cut off, spoiled or gone on with after its end."""
    name, told = new_id(), list[Event]()

    def tell(payload: Payload, by: str = source) -> None:
        told.append(event(name, len([one for one in told if one.source != "zombie"]), payload, by))

    tell(started())
    for number in range(rng.randrange(1, 4)):
        tell(turn())
        if rng.random() < 0.5:
            tell(ToolCalled(turn=number, call_id=f"c{number}", tool="t", arguments="{}", at=now_us()))
            tell(ToolReturned(turn=number, call_id=f"c{number}", status="ok", at=now_us()))
    luck = rng.random()
    if luck < 0.1:
        return told
    if luck < 0.2:
        told.append(told[-1]._replace(id=new_id(), source="zombie"))
    elif luck < 0.3:
        tell(turn())
        told[-1] = told[-1]._replace(data=b"\xc1")
    elif luck < 0.4:
        source = f"{source}/next"
        tell(EpisodeResumed(attempt=1, at=now_us()), source)
        told.append(zombie(told[-1]))
    elif luck < 0.5:
        tell(turn())
        told[-1] = told[-1]._replace(type="headrace.turn.dreamed.v7")
    tell(finished(SUBMISSION if rng.random() < 0.9 else None), source)
    if luck > 0.9:
        told.append(zombie(told[-1]))
    return told


def zombie(before: Event) -> Event:
    """A turn of a writer that does not know what happened."""
    return event(before.subject, before.sequence + 1, turn(), "zombie")


def sink(settings: Settings, name: str) -> None:
    store = open_store(settings)
    made = Sink(open_chaos_log(settings), open_lake(settings, store), store, settings, member=name)
    ready(settings, name)
    made.run(threading.Event())


def verify(settings: Settings, name: str) -> None:
    store = open_store(settings)
    made = VerifyConsumer(open_chaos_log(settings), scorer(store), settings, lake=open_lake(settings, store))
    ready(settings, name)
    made.run(threading.Event())


def main(role: str, home: str, log: str, storage: str, name: str, seed: str) -> None:
    settings = settings_of(home, log, storage)
    if role == "writer":
        writer(settings, name, int(seed))
    elif role == "sink":
        sink(settings, name)
    else:
        verify(settings, name)


if __name__ == "__main__":
    main(*sys.argv[1:])
