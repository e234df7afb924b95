"""The lake anew from the log: built beside the old tables, compared with them, then made the lake at one moment.

Invariants. Until the moment of the switch nothing that anybody reads is touched, and what was built is kept when the
process dies: the next one goes on there, unless the code that makes rows changed. Sinks may go on meanwhile: what they
added to the old tables before they noticed is in the log, and is added to the new ones before this returns. The old
tables stay where they are until they are discarded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from consumers.folding import Folding
from eventlog.inspection import Inspector
from eventlog.log import EventLog, TopicPartition
from lake import generation, timeline
from lake.content import CONTENT_TABLES, Content, content
from lake.lease import Lease, maintenance
from lake.snapshot import snapshot_of
from lake.tables import NewerLakeError, open_table, table_exists
from lake.vacuum import Unneeded, discard
from replay.derive import Source, judgement, windows
from replay.source import ArchiveSource, LogSource, Loss
from schemas.errors import CommitConflictError, LakeError, LogDamagedError, NotFoundError, QueryError
from schemas.failpoints import hit
from schemas.ids import new_id, now_us
from schemas.tables import TABLES
from schemas.topics import TOPICS, TRAJECTORIES

if TYPE_CHECKING:
    from artifacts.store import ArtifactStore
    from lake.lake import Lake

FILE = generation.BUILDING
_LOGGER = logging.getLogger("headrace.lake")
_ATTEMPTS = 20
Positions = dict[TopicPartition, int]
Advance = Callable[[int], None]


class Begun(msgspec.Struct, frozen=True):
    """A rebuild that is under way: where, of which log, and by which code."""

    tables: str
    identity: str
    judgement: str


class TableReport(NamedTuple):
    """One table before and after; `before` is null where it could not be read."""

    table: str
    before: Content | None
    after: Content

    @property
    def same(self) -> bool:
        return self.before == self.after


def rebuild(lake: Lake, log: EventLog, inspector: Inspector, artifacts: ArtifactStore, *, check: bool = False,
            accept_loss: bool = False, wait_s: float = 0.0,
            advance: Advance = lambda count: None) -> list[TableReport]:
    """Build, compare, switch. With `check` the new tables are thrown away instead, and the lake stays as it is.

    Raises LogDamagedError where the log is not what was written and the archive does not make up for it, unless
    `accept_loss` says to go on: then what cannot be believed is a dead letter, and what is gone stays missing.
    """
    with maintenance(lake.folder, "rebuild", wait_s) as lease:
        old = _positions(lake, log)
        if not accept_loss:
            _refuse_damaged(inspector, lake)
        begun = _begin(lake, log)
        new = lake.beside(begun.tables)
        new.bind(log.identity)
        source = LogSource(inspector, ArchiveSource(lake, snapshot_of(old)), _accept if accept_loss else _refuse)
        _fill(new, source, artifacts, log.ends(TOPICS), lease, advance)
        reports = _compare(lake, new, snapshot_of(old) if old else new.snapshot())
        lease.check()
        if check:
            list(discard(lake.folder, begun.tables, lease))
            lake.folder.remove(FILE)
            return reports
        timeline.inherit(lake, new, now_us() // 1000)
        hit("rebuild:before_switch")
        generation.switch(lake.folder, begun.tables)
        hit("rebuild:after_switch")
        lake.folder.remove(FILE)
        _fill(new, source, artifacts, log.ends(TOPICS), lease, advance)
        return reports


_GO_ON = ("`headrace log verify` lists all damage; restore a backup of the log, or say --accept-loss: then what was "
          "changed becomes dead letters and what is gone stays missing")


def _refuse_damaged(inspector: Inspector, lake: Lake) -> None:
    if found := next(inspector.faults(), ""):
        raise LogDamagedError(f"the log is damaged ({found}); the lake stays as it is", where=lake.folder.url,
                              hint=_GO_ON)


def _refuse(loss: Loss) -> None:
    raise LogDamagedError(f"neither the log nor the lake's archive has what was written ({loss}); the lake stays as it "
                          "is", hint=_GO_ON)


def _accept(loss: Loss) -> None:
    _LOGGER.warning("%s", loss)


def undo(lake: Lake, wait_s: float = 0.0) -> str:
    """Make the tables of before the last rebuild the lake again; what came since, the sink adds to them."""
    with maintenance(lake.folder, "rebuild --undo", wait_s) as lease:
        before = generation.read(lake.folder)[0].before
        if not before:
            raise NotFoundError("there is no lake of before a rebuild", where=lake.folder.url)
        if not table_exists(generation.tables_of(lake.folder, before[0].tables), "events"):
            raise NotFoundError("the lake of before is gone", hint="the lake that is there stays the lake",
                                where=generation.tables_of(lake.folder, before[0].tables).url)
        lease.check()
        generation.switch(lake.folder, before[0].tables)
        return generation.tables_of(lake.folder, before[0].tables).url


def discard_old(lake: Lake, *, dry_run: bool = False, wait_s: float = 0.0) -> list[Unneeded]:
    """Remove all tables of before rebuilds."""
    with maintenance(lake.folder, "rebuild --discard-old", wait_s) as lease:
        return [file for past in generation.read(lake.folder)[0].before
                for file in discard(lake.folder, past.tables, lease, dry_run)]


def _positions(lake: Lake, log: EventLog) -> Positions:
    """Of the old lake; none where it cannot be read. Raises LakeError where the log is not the one it was made of."""
    _refuse_newer(lake)
    try:
        identity, at = lake.identity, lake.positions()
    except LakeError:
        return {}
    if identity and identity != log.identity:
        raise LakeError("the lake is a copy of another log", where=lake.folder.url,
                        value={"lake": identity, "log": log.identity}, hint="use the home that belongs to this log")
    ends = log.ends(TOPICS)
    for part, position in at.items():
        if position > ends.get(part, 0):
            raise LakeError("the log ends before the lake does: it lost its end", where=f"{part[0]}-{part[1]}",
                            value={"log": ends.get(part, 0), "lake": position},
                            hint="the lake holds what is lost; a rebuild would lose it too")
    return at


def _refuse_newer(lake: Lake) -> None:
    """Whichever table it is: what a newer version wrote is not replaced by what this one would write."""
    for name in TABLES:
        try:
            if table_exists(lake.tables, name):
                open_table(lake.tables, name)
        except NewerLakeError:
            raise
        except LakeError:  # Damage is why one rebuilds.
            pass


def _begin(lake: Lake, log: EventLog) -> Begun:
    try:
        begun = msgspec.json.decode(lake.folder.read(FILE), type=Begun)
        current = generation.read(lake.folder)[0].tables
        if (begun.identity, begun.judgement) == (log.identity, judgement()) and begun.tables != current:
            return begun
    except (FileNotFoundError, msgspec.MsgspecError):
        pass
    begun = Begun(f"tables-{new_id()}", log.identity, judgement())
    lake.folder.write(FILE, msgspec.json.encode(begun))
    return begun


def _fill(new: Lake, source: Source, artifacts: ArtifactStore, ends: Positions, lease: Lease,
          advance: Advance) -> None:
    """Until the new tables reach `ends`. A sink that writes them already does the same work: then look again."""
    for _ in range(_ATTEMPTS):
        try:
            at = new.positions()
            for part, end in sorted(ends.items()):
                if at.get(part, 0) < end:
                    _fill_partition(new, source, artifacts, part, at.get(part, 0), end, lease, advance)
            return
        except CommitConflictError as wrong:
            conflict = wrong
    raise conflict


def _fill_partition(new: Lake, source: Source, artifacts: ArtifactStore, part: TopicPartition, low: int, high: int,
                    lease: Lease, advance: Advance) -> None:
    folding = Folding(artifacts)
    if part[0] == TRAJECTORIES and low:
        folding.restore(new, [part[1]], {part: low})
    for window in windows(source, folding, part, low, high):
        lease.check()
        new.commit(window.tables, {part: window.low}, {part: window.high})
        new.maintain()
        hit("rebuild:after_commit")
        advance(window.high - window.low)


def _compare(old: Lake, new: Lake, as_of: dict[str, int]) -> list[TableReport]:
    after = content(new, as_of)
    return [TableReport(table, _content_of(old, table, as_of), after[table]) for table in CONTENT_TABLES]


def _content_of(lake: Lake, table: str, as_of: dict[str, int]) -> Content | None:
    try:
        return content(lake, as_of, [table])[table]
    except (LakeError, QueryError):
        return None
