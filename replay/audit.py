"""The audit row by row: every row of the lake against what its event says, from the archive or from the log.

It derives each partition anew, a window at a time, and compares whole rows, so that a row which was dropped, doubled,
moved or changed in any column is told with its place. Memory is bounded by a window.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from consumers.folding import Folding
from lake.content import resolved
from lake.snapshot import snapshot_of
from replay.compare import Compared
from replay.derive import Source, Window, windows
from replay.source import ArchiveSource, LogSource, Loss
from schemas.tables import TABLES
from schemas.topics import DEAD_LETTERS, REQUESTS, SCORES, TASKS, TRAINING, TRAJECTORIES

if TYPE_CHECKING:
    from artifacts.store import ArtifactStore
    from eventlog.inspection import Inspector
    from lake.lake import Lake

_TABLES_OF = {
    TASKS: ("tasks",), REQUESTS: ("requests", "cancellations"), TRAJECTORIES: ("episodes", "turns", "tool_calls"),
    SCORES: ("scores",), TRAINING: ("batches", "batch_rows", "batch_dispositions", "steps", "weights"),
    DEAD_LETTERS: ()}
_LISTED = 5


def differences(lake: Lake, artifacts: ArtifactStore, log: Inspector | None = None,
                advance: Callable[[int], None] = lambda count: None) -> Iterator[str]:
    """What is not as its event says, in words; with `log`, the events are the log's. A few of each kind are listed."""
    positions = lake.positions()
    as_of = snapshot_of(positions)
    archive, lost = ArchiveSource(lake, as_of), list[Loss]()
    source: Source = LogSource(log, archive, lost.append) if log else archive
    told: Counter[str] = Counter()
    for part, end in sorted(positions.items()):
        for window in windows(source, Folding(artifacts), part, 0, end):
            for kind, text in [*(("losses of the log", str(loss)) for loss in lost), *_compare(lake, as_of, window)]:
                told[kind] += 1
                if told[kind] <= _LISTED:
                    yield text
            lost.clear()
            advance(window.high - window.low)
    yield from (f"... and {count - _LISTED} more of {kind}" for kind, count in told.items() if count > _LISTED)


def _compare(lake: Lake, as_of: Mapping[str, int], window: Window) -> Iterator[tuple[str, str]]:
    letters = _compared(lake, as_of, window, "dead_letters")
    place = f"{window.part[0]}-{window.part[1]}"
    healable = {key[0] for key in letters.there.keys() - letters.here.keys()}
    for offset in sorted(healable):
        yield "dead letters", (f"dead letter at {place} offset {offset}: it would be accepted now; "
                               "`headrace lake redrive` makes it a row")
    for key in sorted(letters.here.keys() - letters.there.keys()):
        reason = letters.here[key][0]["reason"]
        yield "unreadable records", f"the record at {place} offset {key[0]} would be a dead letter now: {reason}"
    for key, what, text in letters.differences():
        if key in letters.here and key in letters.there and what != "reason":
            yield f"dead_letters.{what}", f"dead_letters: {place} offset {key[0]}: {text}"
    for table in ("events", *_TABLES_OF.get(window.part[0], ())):
        for key, what, text in _compared(lake, as_of, window, table).differences():
            if key[0] not in healable:
                yield f"{table}.{what}", f"{table}: {place} offset {key[0]}: {text}"


def _compared(lake: Lake, as_of: Mapping[str, int], window: Window, table: str) -> Compared:
    columns = ", ".join(f'"{name}"' for name in TABLES[table].names)
    query = f"""select {columns} from ({resolved(table)}) where topic = $topic and partition = $partition
        and "offset" >= $low and "offset" < $high"""
    asked = {"topic": window.part[0], "partition": window.part[1], "low": window.low, "high": window.high}
    return Compared(window.tables.get(table, TABLES[table].empty_table()), lake.sql(query, as_of, asked))
