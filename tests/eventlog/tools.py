"""What the log's tests share: events, reading until something holds, and readers and writers in other processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from eventlog.audit import Audit
from eventlog.inspection import inspect_log
from eventlog.log import Subscription
from schemas.envelope import Event, Record, wire_type
from schemas.ids import new_id
from schemas.settings import Settings
from tests.conftest import REPOSITORY

TIMEOUT_S = 40.0
TURN = wire_type("turn.generated")


def event(subject: str = "episode-1", sequence: int = 0, data: bytes = b"payload", event_id: str | None = None,
          source: str = "writer-1", time_us: int = 1_700_000_000_123_000) -> Event:
    return Event(event_id or new_id(), source, TURN, subject, sequence, time_us, data)


def poll_until(subscription: Subscription, done: Callable[[list[Record]], bool], *others: Subscription) -> list[Record]:
    """All records that came until `done`; the other subscriptions are polled too, as their processes would."""
    deadline = time.monotonic() + TIMEOUT_S
    records: list[Record] = []
    while not done(records):
        assert time.monotonic() < deadline, f"gave up with {len(records)} records"
        for other in others:
            other.poll(0.02)
        records += subscription.poll(0.02 if others else 0.2)
    return records


def read(subscription: Subscription, count: int) -> list[Record]:
    """Exactly `count` records, and no more behind them."""
    records = poll_until(subscription, lambda found: len(found) >= count)
    assert len(records) == count
    return records


def gather(*subscriptions: Subscription, done: Callable[..., bool]) -> list[list[Record]]:
    """What each of them read, all polled in turn (a group may rebalance at any time), until `done` with the lists."""
    deadline = time.monotonic() + TIMEOUT_S
    found: list[list[Record]] = [[] for _ in subscriptions]
    while not done(*found):
        assert time.monotonic() < deadline, [len(records) for records in found]
        for subscription, records in zip(subscriptions, found, strict=True):
            records += subscription.poll(0.05)
    return found


def settle(*subscriptions: Subscription, done: Callable[[], bool]) -> None:
    """Poll all members of a group until `done`. For groups whose topics are empty or already read."""
    deadline = time.monotonic() + TIMEOUT_S
    while not done():
        assert time.monotonic() < deadline, [sorted(one.assignment()) for one in subscriptions]
        for subscription in subscriptions:
            subscription.poll(0.05)


@contextmanager
def process(code: str, settings: Settings, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A Python process that runs `code` with `settings`, `arguments` and the log's names at hand."""
    start = """
import os, sys, threading
import msgspec
from eventlog import open_log
from schemas.settings import Settings
from tests.eventlog.tools import event
settings = msgspec.json.decode(sys.argv[1], type=Settings)
arguments = sys.argv[2:]
def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\\n")
    sys.stdout.flush()
"""
    command = [sys.executable, "-c", start + code, msgspec.json.encode(settings).decode(), *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    running = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY,
                               env=environment)
    try:
        yield running
    finally:
        running.kill()
        running.communicate()


def heard(running: subprocess.Popen[str]) -> str:
    """The next line that the process says."""
    assert running.stdout is not None
    line = running.stdout.readline()
    assert line, "the process ended without a word"
    return line.strip()


def audited(settings: Settings) -> Audit:
    """The audit of a whole log."""
    inspector = inspect_log(settings)
    try:
        audit = Audit(inspector)
        for _ in audit.run():
            pass
        return audit
    finally:
        inspector.close()
