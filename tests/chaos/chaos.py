"""Kills and pauses everything at random, then audits: `python -m tests.chaos.chaos [--seed S] [--kills N] [--on P]`.

Two writers, two sinks and a verify consumer run on one home; each that dies is started again. Half of the sinks die at
a named failpoint. On Kafka the broker is restarted too. Prints one JSON line; exits 1 if the audit found a problem.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import apsw

from eventlog.log import EventLog
from schemas.failpoints import VARIABLE
from schemas.settings import Settings
from schemas.tables import COMMIT_ORDER
from schemas.topics import TRAJECTORIES
from tests.chaos import audit
from tests.chaos.workers import LEASE_S, open_chaos_log, settings_of
from tests.conftest import REPOSITORY
from tests.eventlog.conftest import broker_module
from tests.s3_server import S3Server

ROLES = (("writer", "one"), ("writer", "two"), ("sink", "sink-one"), ("sink", "sink-two"), ("verify", "verify"))
_PLACES = ("sink:before_write", "sink:after_data_file", "sink:before_offset_commit",
           *(f"sink:after_table:{name}" for name in ("turns", "tool_calls", "episodes", "scores", "dead_letters",
                                                     COMMIT_ORDER[-1])))
_LONG_PAUSE_S = 7.0
"""Longer than a session lasts on Kafka."""


class Worker:
    """One role, started again whenever it is gone."""

    def __init__(self, role: str, name: str, settings: Settings, rng: random.Random) -> None:
        self.role, self.name, self._settings, self._rng = role, name, settings, rng
        self.starts = 0
        self.wakes_at = 0.0
        self._ready = Path(settings.home) / f"{name}.ready"
        self.start()

    def start(self) -> None:
        self.starts += 1
        self._ready.unlink(missing_ok=True)
        environment = {key: value for key, value in os.environ.items() if key != VARIABLE}
        self.armed = self.role == "sink" and self._rng.random() < 0.5
        if self.armed:
            environment[VARIABLE] = f"{self._rng.choice(_PLACES)}@{self._rng.randrange(1, 6)}"
        self.errors = Path(self._settings.home) / f"{self.name}.err"
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.workers", self.role, self._settings.home, self._settings.log,
                 self._settings.lake.removesuffix("/lake"), self.name, str(self._rng.randrange(2**32))],
                env=environment, cwd=REPOSITORY, stderr=errors)
        self._begun = time.monotonic() if self._rng.random() < 0.1 else 0.0  # Some die while they start.
        self.lives_s = 8.0 if self.armed else self._rng.uniform(0.2, 3.0)

    def due(self, now: float) -> bool:
        """Whether it has lived long enough since it was ready."""
        if not self._begun and self._ready.exists():
            self._begun = now
        return bool(self._begun) and not self.wakes_at and now - self._begun > self.lives_s

    def last_words(self, count: int = 300) -> str:
        return self.errors.read_text(errors="replace")[-count:]

    def pause(self, seconds: float) -> None:
        self.process.send_signal(signal.SIGSTOP)
        self.wakes_at = time.monotonic() + seconds

    def wake(self, now: float) -> None:
        if self.wakes_at and now >= self.wakes_at:
            self.process.send_signal(signal.SIGCONT)
            self.wakes_at = 0.0

    def kill(self) -> None:
        self.wakes_at = 0.0
        self.process.kill()
        self.process.wait()


class Chaos:
    def __init__(self, settings: Settings, seed: int, restart_broker: Callable[[], None] | None = None) -> None:
        self.rng, self.settings = random.Random(seed), settings
        self.log: EventLog = open_chaos_log(self.settings)
        self.done: Counter[str] = Counter()
        self.problems: list[str] = []
        self._restart_broker = restart_broker
        self._spoil = _spoil_kafka if restart_broker else _spoil_sqlite
        self._broker_back = 0.0
        self.workers = [Worker(role, name, self.settings, self.rng) for role, name in ROLES]

    @property
    def kills(self) -> int:
        return self.done["kills"] + self.done["failpoints"] + self.done["pauses"]

    def run(self, kills: int) -> None:
        try:
            while self.kills < kills and not self.problems:
                self._tick(kills)
        finally:
            for worker in self.workers:
                worker.kill()

    def _tick(self, kills: int) -> None:
        time.sleep(0.02)
        now, before = time.monotonic(), self.kills
        for worker in self.workers:
            worker.wake(now)
            if worker.process.poll() is not None:
                self._ended(worker)
            elif worker.due(now):
                self._strike(worker)
        if self.kills // 10 > self.done["undecodable"] and self._spoil(self.settings, self.rng):
            self.done["undecodable"] += 1
            print(f"chaos: {self.kills} of {kills} ({dict(self.done)})", file=sys.stderr)
        if self._restart_broker and self.kills // 25 > before // 25:
            self._restart_broker()
            self.done["broker_restarts"] += 1
            self._broker_back = time.monotonic()

    def _strike(self, worker: Worker) -> None:
        if self.rng.random() < 0.2:
            long = self.rng.random() < 0.3
            worker.pause(_LONG_PAUSE_S if long and self._restart_broker else 2 * LEASE_S if long else 0.3)
            worker.lives_s += self.rng.uniform(0.5, 4.0)
            self.done["pauses"] += 1
        else:
            worker.kill()
            self.done["kills"] += 1
            worker.start()

    def _ended(self, worker: Worker) -> None:
        """By its failpoint; or it gave up, which it may while the broker is away."""
        code = worker.process.wait()
        if code == -signal.SIGKILL and worker.armed:
            self.done["failpoints"] += 1
        elif self._restart_broker and time.monotonic() - self._broker_back < 60:
            self.done["gave_up"] += 1
            print(f"chaos: {worker.name} gave up: {worker.last_words()}", file=sys.stderr)
        else:
            self.problems.append(f"{worker.name} ended with {code}: {worker.last_words(2000)}")
        worker.start()

    def report(self, seed: int, began: float) -> dict[str, Any]:
        lake = audit.settle(self.log, self.settings)
        self.problems += audit.problems(self.log, lake, self.settings)
        counts = lake.sql("""select count(*) as events, count(*) filter (where not admitted) as fenced,
            count(*) filter (where type = 'episode.finished' and admitted) as finished,
            (select count(*) from dead_letters) as dead_letters, (select count(*) from scores) as scores
            from events""").to_pylist()[0]
        self.log.close()
        return {"seed": seed, **self.done, **counts,
                "starts": sum(worker.starts for worker in self.workers),
                "seconds": round(time.monotonic() - began, 1), "holds": not self.problems,
                "problems": self.problems[:20]}


def _spoil_sqlite(settings: Settings, rng: random.Random) -> bool:
    """A record that is none, at the end of a partition. False if a worker that is paused holds the file's lock."""
    connection = apsw.Connection(f"{settings.home}/log.db")
    connection.set_busy_timeout(200)
    try:
        connection.execute("begin immediate")
    except apsw.BusyError:
        connection.close()
        return False
    topic = connection.execute("select number from topics where name = ?", (TRAJECTORIES,)).get
    key = topic, rng.randrange(settings.log_partitions)
    head = connection.execute("select next_offset from heads where topic = ? and partition = ?", key).get
    connection.execute(
        "insert into events values (?, ?, ?, ?, cast(x'ff' as text), 't', 's', 0, 0, x'fffe00', null)",
        (*key, head, f"broken-{rng.random()}"))
    connection.execute("update heads set next_offset = ? where topic = ? and partition = ?", (head + 1, *key))
    connection.execute("commit")
    connection.close()
    return True


def _spoil_kafka(settings: Settings, rng: random.Random) -> bool:
    import kafka

    producer = kafka.KafkaProducer(bootstrap_servers=settings.log.removeprefix("kafka://"))
    producer.send(TRAJECTORIES, b"\xff\xfe\x00", key=b"\xff", headers=[("ce_specversion", b"\xff")],
                  partition=rng.randrange(settings.log_partitions)).get(60)
    producer.close()
    return True


def chaos(place: str, seed: int, kills: int) -> dict[str, Any]:
    """Run and report. The place is `sqlite`, `kafka`, for which a broker is started, or `s3`: the embedded log, with
    lake and artifacts on a local S3 server."""
    began = time.monotonic()
    with TemporaryDirectory(prefix="headrace-chaos-") as folder:
        home = Path(folder) / "home"
        home.mkdir()
        with _PLACES_TO_BE[place](home, seed) as made:
            made.run(kills)
            return {"question": f"chaos on {place}", **made.report(seed, began)}


@contextmanager
def _on_sqlite(home: Path, seed: int) -> Iterator[Chaos]:
    yield Chaos(settings_of(str(home), "sqlite"), seed)


@contextmanager
def _on_kafka(home: Path, seed: int) -> Iterator[Chaos]:
    with broker_module().Broker(home.parent / "broker") as broker:
        def restart() -> None:
            broker.stop()
            broker.start()

        yield Chaos(settings_of(str(home), broker.log_setting), seed, restart)


@contextmanager
def _on_s3(home: Path, seed: int) -> Iterator[Chaos]:
    server, before = S3Server(), dict(os.environ)
    os.environ.update(server.environment)
    try:
        server.make_bucket("chaos")
        yield Chaos(settings_of(str(home), "sqlite", "s3://chaos"), seed)
    finally:
        os.environ.clear()
        os.environ.update(before)
        server.stop()


_PLACES_TO_BE: dict[str, Callable[[Path, int], AbstractContextManager[Chaos]]] = {
    "sqlite": _on_sqlite, "kafka": _on_kafka, "s3": _on_s3}


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--kills", type=int, default=70, help="kills and pauses in each place")
    options.add_argument("--on", choices=list(_PLACES_TO_BE), help="only there")
    given = options.parse_args()
    logging.disable(logging.WARNING)  # The audit reads the spoiled events too.
    held = True
    for place in [given.on] if given.on else _PLACES_TO_BE:
        found = chaos(place, given.seed, given.kills)
        print(json.dumps(found), flush=True)
        held &= found["holds"]
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
