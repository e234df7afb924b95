"""Dead letters once more: what today's code and artifacts accept becomes rows, at the offset where it always lay.

A letter is judged as the sink would judge it now: a fact by itself, an event of an episode with its whole episode. What
is accepted gets the rows that a lake built anew would have, and its letter stays, marked. What still fails stays as it
is. So does a letter whose healing would change rows that are there already (an event that was unreadable decides what
comes after it): tables only grow, and `headrace lake rebuild` is the way for those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Literal, NamedTuple

import pyarrow as pa

from consumers.columns import RowBuffer
from consumers.folding import Folding
from eventlog.inspection import Inspector
from lake.content import resolved
from lake.history import COLUMNS, events_in
from lake.lease import Lease, maintenance
from lake.redrive import add_missing, mark
from lake.snapshot import snapshot_of
from lake.soundness import require_sound
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
_NEAR = 200
Result = Literal["redriven", "stays", "needs a rebuild"]


class Outcome(NamedTuple):
    position: Position
    result: Result
    reason: str
    """Why the letter stays; of a redriven one, why it was a letter."""


class _Judged(NamedTuple):
    outcome: Outcome
    rows: dict[str, pa.Table]


def redrive(lake: Lake, log: Inspector, artifacts: ArtifactStore, *, dry_run: bool = False, wait_s: float = 0.0,
            advance: Callable[[int], None] = lambda count: None) -> list[Outcome]:
    """Judge every dead letter that is not redriven yet. With `dry_run` nothing is written."""
    require_sound(lake)
    with maintenance(lake.folder, "redrive", wait_s) as lease:
        judge = _Judge(lake, log, artifacts)
        outcomes: list[Outcome] = []
        letters = lake.sql(_LETTERS).to_pylist()
        for first in range(0, len(letters), _CHUNK):
            judged = judge.letters({Position(row["topic"], row["partition"], row["offset"]): row["reason"]
                                    for row in letters[first:first + _CHUNK]})
            if not dry_run:
                _write(lake, judged, lease)
            outcomes += [one.outcome for one in judged]
            advance(len(judged))
        return outcomes


def runs(positions: Iterable[Position]) -> Iterator[list[Position]]:
    """Positions of one partition that lie so near each other that what is between may be read too."""
    run: list[Position] = []
    for position in positions:
        if run and (position[:2] != run[-1][:2] or position.offset - run[-1].offset > _NEAR):
            yield run
            run = []
        run.append(position)
    if run:
        yield run


def _among(wanted: Set[Position], records: Iterable[Record]) -> dict[Position, Record]:
    return {record.position: record for record in records if record.position in wanted}


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
    def __init__(self, lake: Lake, log: Inspector, artifacts: ArtifactStore) -> None:
        self._lake, self._artifacts = lake, artifacts
        self._as_of = snapshot_of(lake.positions())
        self._archive = ArchiveSource(lake, self._as_of)
        self._log = LogSource(log, self._archive, lambda loss: None)

    def letters(self, letters: Mapping[Position, str]) -> list[_Judged]:
        """Letters with their reasons, in the order of the log."""
        records = {position: record for run in runs(letters) for position, record in self._records(run).items()}
        return [self._letter(position, records.get(position), reason) for position, reason in letters.items()]

    def _letter(self, position: Position, record: Record | None, reason: str) -> _Judged:
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

    def _records(self, run: Sequence[Position]) -> dict[Position, Record]:
        """From the archive, or from the log what was unreadable when it was archived. Neither is asked for one letter
        at a time: to begin to read costs more than to read on."""
        part, wanted = (run[0].topic, run[0].partition), set(run)
        found = _among(wanted, self._archive.read(part, run[0].offset, run[-1].offset + 1))
        left = [position for position in run if position not in found or found[position].event is None]
        if left:
            found |= _among(set(left), self._log.read(part, left[0].offset, left[-1].offset + 1))
        return found

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
