"""Dead letters once more: what today's code and artifacts accept becomes rows, at the offset where it always lay.

A letter is judged as the sink would judge it now: a fact by itself, an event of an episode with its whole episode. What
is accepted gets the rows that a lake built anew would have, and its letter stays, marked. What still fails stays as it
is. So does a letter whose healing would change rows that are there already (an event that was unreadable decides what
comes after it): tables only grow, and `headrace lake rebuild` is the way for those.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple

import pyarrow as pa

from consumers.columns import RowBuffer
from consumers.folding import Folding
from eventlog.log import EventLog
from lake.content import resolved
from lake.history import COLUMNS, events_in
from lake.lease import Lease, maintenance
from lake.redrive import add_missing, mark
from lake.snapshot import snapshot_of
from replay.compare import Compared
from replay.source import ArchiveSource, LogSource
from schemas.envelope import Position, Record
from schemas.failpoints import hit
from schemas.tables import COMMIT_ORDER, TABLES
from schemas.topics import TRAJECTORIES

if TYPE_CHECKING:
    from artifacts.store import ArtifactStore
    from lake.lake import Lake

_LETTERS = """
select topic, partition, "offset", any_value(reason) as reason from dead_letters where redriven_at is null
group by 1, 2, 3 order by 1, 2, 3
"""
_EPISODE = f"""
select {COLUMNS} from events where topic = $topic and partition = $partition and subject = $subject order by "offset"
"""
_THERE = """
select {columns} from ({rows}) where topic = $topic and partition = $partition
  and "offset" in (select unnest($offsets::bigint[]))
"""
_CHUNK = 200
Result = Literal["redriven", "stays", "needs a rebuild"]


class Outcome(NamedTuple):
    position: Position
    result: Result
    reason: str
    """Why the letter stays; of a redriven one, why it was a letter."""


class _Judged(NamedTuple):
    outcome: Outcome
    rows: dict[str, pa.Table]


def redrive(lake: Lake, log: EventLog, artifacts: ArtifactStore, *, dry_run: bool = False, wait_s: float = 0.0,
            advance: Callable[[int], None] = lambda count: None) -> list[Outcome]:
    """Judge every dead letter that is not redriven yet. With `dry_run` nothing is written."""
    with maintenance(lake.folder, "redrive", wait_s) as lease:
        judge = _Judge(lake, log, artifacts)
        outcomes: list[Outcome] = []
        letters = lake.sql(_LETTERS).to_pylist()
        for first in range(0, len(letters), _CHUNK):
            judged = [judge.letter(Position(row["topic"], row["partition"], row["offset"]), row["reason"])
                      for row in letters[first:first + _CHUNK]]
            if not dry_run:
                _write(lake, judged, lease)
            outcomes += [one.outcome for one in judged]
            advance(len(judged))
        return outcomes


def _write(lake: Lake, judged: list[_Judged], lease: Lease) -> None:
    healed = [one for one in judged if one.outcome.result == "redriven"]
    for table in COMMIT_ORDER:
        rows = [one.rows[table] for one in healed if table in one.rows]
        if rows:
            lease.check()
            add_missing(lake, table, pa.concat_tables(rows))
            hit(f"redrive:after_table:{table}")
    if healed:
        lease.check()
        mark(lake, [one.outcome.position for one in healed])


class _Judge:
    def __init__(self, lake: Lake, log: EventLog, artifacts: ArtifactStore) -> None:
        self._lake, self._artifacts = lake, artifacts
        self._as_of = snapshot_of(lake.positions())
        self._archive = ArchiveSource(lake, self._as_of)
        self._log = LogSource(log, self._archive)

    def letter(self, position: Position, reason: str) -> _Judged:
        record = self._record(position)
        if record is None or record.event is None:
            return _Judged(Outcome(position, "stays", reason), {})
        records = self._episode(record) if position.topic == TRAJECTORIES else [record]
        made, whole = self._made(records, position)
        if "dead_letters" in made:
            return _Judged(Outcome(position, "stays", made["dead_letters"]["reason"][0].as_py()), {})
        for table in whole:
            if changed := self._changed(table, whole[table], position):
                return _Judged(Outcome(position, "needs a rebuild", f"{table}: offset {changed}"), {})
        return _Judged(Outcome(position, "redriven", reason), made)

    def _record(self, position: Position) -> Record | None:
        """From the archive, or from the log where it was unreadable."""
        part = (position.topic, position.partition)
        found = next(self._archive.read(part, position.offset, position.offset + 1), None)
        if found is not None and found.event is not None:
            return found
        return next(self._log.read(part, position.offset, position.offset + 1), found)

    def _episode(self, record: Record) -> list[Record]:
        assert record.event is not None
        position = record.position
        asked = {"topic": position.topic, "partition": position.partition, "subject": record.event.subject}
        events = [Record(*found) for batch in self._lake.batches(_EPISODE, self._as_of, asked)
                  for found in events_in(batch)]
        if all(one.position != position for one in events):
            events.append(record)
        return sorted(events, key=lambda one: one.position.offset)

    def _made(self, records: list[Record], position: Position) -> tuple[dict[str, pa.Table], dict[str, pa.Table]]:
        """The rows of the letter's own record, and those of all records."""
        folding, own, whole = Folding(self._artifacts), RowBuffer(), RowBuffer()
        for record in records:
            rows = folding.rows(record)
            whole.add(rows)
            if record.position == position:
                own.add(rows)
        return own.tables(), whole.tables()

    def _changed(self, table: str, rows: pa.Table, position: Position) -> str:
        """A difference between rows that are there and what they would be now; empty if only rows are missing."""
        columns = ", ".join(f'"{name}"' for name in TABLES[table].names)
        there = self._lake.sql(_THERE.format(columns=columns, rows=resolved(table)), self._as_of, {
            "topic": position.topic, "partition": position.partition, "offsets": rows["offset"].to_pylist()})
        compared = Compared(rows, there)
        for key, what, text in compared.differences():
            if key in compared.there and not (key[0] == position.offset and table == "events" and what == "reason"):
                return f"{key[0]}: {text}"
        return ""
