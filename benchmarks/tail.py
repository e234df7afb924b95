"""How long after an append does another process see the event: as a subscriber of the log, and in SQL behind a sink?

    python benchmarks/tail.py [--quick] [--seed S]

One event at a time, at random moments, 100 a second for subscribers. The clock is the machine's monotonic one, which
all its processes share; it starts before `append` is called.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path

from harness import SPAWN, Story, answer, kafka_module, parser, quantile, scratch

from artifacts import open_store
from consumers.sink import Sink
from eventlog import open_log
from eventlog.log import EventLog
from lake import open_lake
from schemas.settings import Settings
from schemas.topics import TRAJECTORIES

RATE = 100.0


def main() -> int:
    options = parser(__doc__).parse_args()
    count, rounds = (300, 8) if options.quick else (3000, 60)
    with scratch() as home:
        held = [subscriber("embedded log", Settings(home=home), options.seed, count, "<= 5"),
                sql(Settings(home=home), options.seed, rounds)]
    module = kafka_module()
    if why := module.missing():
        held.append(answer(_QUESTION.format("Kafka"), None, "ms", None, f"not measured: {why}", 0))
    else:
        with scratch() as home, module.Broker(Path(home) / "broker") as broker:
            held.append(subscriber("Kafka", Settings(home=home, log=broker.log_setting), options.seed, count, None))
    return 0 if all(held) else 1


_QUESTION = "{}, append to visible for a subscriber of another process, p50"


def subscriber(name: str, settings: Settings, seed: int, count: int, target: str | None) -> bool:
    ours, theirs = SPAWN.Pipe()
    log = open_log(settings)
    process = SPAWN.Process(target=_listen, args=(settings, count, theirs))
    process.start()
    theirs.close()  # So that the end of the process ends the wait.
    try:
        assert ours.recv() == "ready"
        sent = _append(log, seed, count)
        seen: dict[str, int] = ours.recv()
    finally:
        process.join(30)
        log.close()
    waits = [(seen[event_id] - at) / 1e6 for event_id, at in sent.items()]
    told = f"p95 {quantile(waits, 0.95):.1f} ms, p99 {quantile(waits, 0.99):.1f} ms, greatest {max(waits):.0f} ms"
    return answer(_QUESTION.format(name), quantile(waits, 0.5), "ms", target, told, count)


def _listen(settings: Settings, count: int, pipe: Connection) -> None:
    log = open_log(settings)
    subscription = log.subscribe([TRAJECTORIES], start="latest")
    subscription.poll(0.5)
    pipe.send("ready")
    seen: dict[str, int] = {}
    while len(seen) < count:
        for record in subscription.poll(1.0):
            assert record.event is not None
            seen[record.event.id] = time.monotonic_ns()
    pipe.send(seen)
    log.close()


def _append(log: EventLog, seed: int, count: int) -> dict[str, int]:
    rng, sent, futures = random.Random(seed), {}, []
    for event in Story(seed, context=60, generated=40, text=200).turns(count, 20):
        time.sleep(rng.expovariate(RATE))
        sent[event.id] = time.monotonic_ns()
        futures.append(log.append(TRAJECTORIES, [event]))
    for future in futures:
        future.result()
    return sent


def sql(settings: Settings, seed: int, rounds: int) -> bool:
    """A sink with the default settings behind a log that takes ten events a second beside the ones we look for."""
    stop, ready = SPAWN.Event(), SPAWN.Event()
    process = SPAWN.Process(target=_sink, args=(settings, ready, stop))
    process.start()
    log, lake = open_log(settings), open_lake(settings, open_store(settings))
    quiet = threading.Event()
    traffic = threading.Thread(target=_traffic, args=(log, seed + 1, quiet))
    try:
        ready.wait(60)
        traffic.start()
        rng, waits = random.Random(seed), []
        for event in Story(seed + 2, 60, 40, 200).turns(rounds + 1, 5):
            time.sleep(rng.uniform(0.0, 0.5))
            began = time.monotonic()
            log.append(TRAJECTORIES, [event])
            while not lake.sql("select 1 from events where id = ?", parameters=[event.id]).num_rows:
                time.sleep(0.01)
            waits.append(time.monotonic() - began)
    finally:
        quiet.set()
        stop.set()
        traffic.join()
        process.join(60)
        log.close()
    waits = waits[1:]  # The first also waits for the lake to be made.
    return answer("append to visible in SQL, lake behind a running sink, p50", quantile(waits, 0.5), "s", "<= 2",
                  f"p95 {quantile(waits, 0.95):.2f} s, greatest {max(waits):.2f} s", rounds)


def _sink(settings: Settings, ready: threading.Event, stop: threading.Event) -> None:
    artifacts = open_store(settings)
    log, lake = open_log(settings), open_lake(settings, artifacts)
    ready.set()
    Sink(log, lake, artifacts, settings).run(stop)
    log.close()


def _traffic(log: EventLog, seed: int, quiet: threading.Event) -> None:
    story = Story(seed, 60, 40, 200)
    log.append(TRAJECTORIES, [story.begin() for _ in range(10)])
    while not quiet.wait(0.1):
        log.append(TRAJECTORIES, [story.turn(random.choice(story.names))])


if __name__ == "__main__":
    sys.exit(main())
