"""Runs the long readers (producer, verify, sink): as a service until a signal, or until idle."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

INTERRUPTED = 130


class Service(Protocol):
    def run(self, stop: threading.Event, until_idle: bool = False) -> None: ...


@contextmanager
def stopping_on_signals() -> Iterator[threading.Event]:
    """An event that SIGTERM sets; Ctrl-C too, the first time."""
    stop = threading.Event()
    handlers = {}
    for number in (signal.SIGTERM, signal.SIGINT):
        if signal.getsignal(number) != signal.SIG_IGN:
            handlers[number] = signal.signal(number, lambda *_: stop.set())
    try:
        yield stop
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def serve(service: Service, until_idle: bool) -> int:
    """Run until a signal asks to stop, or until there is nothing left to do. The exit code: a service was meant to be
    ended so, but what was to run until idle was interrupted, and what was to follow it must not."""
    if not until_idle:
        print("running; Ctrl-C ends it", file=sys.stderr, flush=True)
    with stopping_on_signals() as stop:
        service.run(stop, until_idle=until_idle)
    if not until_idle or not stop.is_set():
        return 0
    print("interrupted; the same command goes on where it stopped", file=sys.stderr)
    return INTERRUPTED


def drain(service: Service) -> None:
    """Run until the service has done all that was asked before now."""
    service.run(threading.Event(), until_idle=True)
