"""Progress: bars on a terminal, a plain line now and then otherwise."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_PLAIN_EVERY_S = 5.0


@contextmanager
def counting(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Yields `advance(n)`. Draws on standard error only, so that pipes stay clean."""
    bar = _bar if sys.stderr.isatty() else _lines
    with bar(what, total) as advance:
        yield advance


@contextmanager
def _bar(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda count: progress.advance(task, count)


@contextmanager
def _lines(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    done, last = 0, time.monotonic()

    def advance(count: int) -> None:
        nonlocal done, last
        done += count
        if time.monotonic() - last >= _PLAIN_EVERY_S:
            last = time.monotonic()
            print(f"{what}: {done}{f' of {total}' if total is not None else ''}", file=sys.stderr, flush=True)

    yield advance
