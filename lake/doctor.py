"""The doctor: what is wrong with the files of a lake, and what to do about it. It changes nothing.

`damage` keeps readers or writers from their work, or makes them believe what is not so; a `note` costs disk or time
alone. What rows say is the audit's to judge (`lake/verify.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from artifacts.folder import Folder
from eventlog.log import TopicPartition
from lake import generation, lease, timeline
from lake.examination import REBUILD, Finding, of_table
from lake.lake import Lake
from lake.snapshot import SnapshotReader
from lake.tables import identity_of, open_table, table_exists
from lake.verify import behind
from schemas.errors import HeadraceError, LakeError
from schemas.tables import TABLES


def examine(lake: Lake, log_identity: str = "", log_ends: Mapping[TopicPartition, int] | None = None,
            advance: Callable[[str], None] = lambda table: None,
            log_starts: Mapping[TopicPartition, int] | None = None) -> list[Finding]:
    """All findings. With the log's identity, ends and starts, the lake is compared with it too."""
    try:
        tables = lake.tables
    except LakeError as wrong:
        return [Finding("damage", lake.folder.url, str(wrong), wrong.hint)]
    found: list[Finding] = []
    sound = True
    owner = _owner(tables)
    for name in TABLES:
        findings = list(of_table(tables, name, owner))
        sound &= all(finding.severity == "note" for finding in findings)
        found += findings
        advance(name)
    try:
        found += _of_whole(lake, tables, log_identity)
        if sound and table_exists(tables, "events"):
            found += _of_positions(lake, log_ends or {}, log_starts or {})
    except LakeError as wrong:
        found.append(Finding("damage", lake.folder.url, str(wrong), wrong.hint))
    return found


def _owner(tables: Folder) -> str:
    try:
        return identity_of(open_table(tables, "events")) if table_exists(tables, "events") else ""
    except LakeError:
        return ""


def _of_whole(lake: Lake, tables: Folder, log_identity: str) -> Iterator[Finding]:
    if wrong := generation.lost(lake.folder):
        yield Finding("damage", generation.POINTER, str(wrong), wrong.hint)
    left = [name for name in TABLES if name != "events" and table_exists(tables, name)]
    if left and not table_exists(tables, "events"):
        yield Finding("damage", "events", f"the table is gone, but there are {', '.join(left)}",
                      "`headrace lake rebuild` builds all tables anew from the log")
    owner = _owner(tables)
    if owner and log_identity and owner != log_identity:
        yield Finding("damage", tables.url, f"is a copy of log {owner}, and this home's log is {log_identity}",
                      "name the --home or --log that belong together")
    held, _ = lease.read(lake.folder)
    if held.owner and held.over(lease.TERM_S):
        yield Finding("note", lease.FILE, f"{held.task} by {held.owner} died",
                      "nothing: the next maintenance takes over")
    yield from _of_unnamed(lake)
    yield from _of_timeline(lake, tables)
    for past in generation.read(lake.folder)[0].before:
        yield Finding("note", generation.tables_of(lake.folder, past.tables).url,
                      "the lake of before a rebuild is kept",
                      "`headrace lake rebuild --discard-old` removes it, `--undo` goes back to it")


def _of_timeline(lake: Lake, tables: Folder) -> Iterator[Finding]:
    try:
        at = lake.positions()
    except LakeError:  # It was told.
        return
    try:
        timeline.require_past(tables, at)
    except LakeError as wrong:
        yield Finding("damage", timeline.FILE, str(wrong), wrong.hint)


def _of_unnamed(lake: Lake) -> Iterator[Finding]:
    """Tables that the pointer names no more: a pointer that was put back names the older ones."""
    pointer = f"{lake.folder.url}/{generation.POINTER}"
    try:
        at = lake.positions()
    except LakeError:  # It was told.
        return
    for name in generation.unnamed(lake.folder):
        tables = generation.tables_of(lake.folder, name)
        try:
            ahead = {part: end for part, end in SnapshotReader(tables).positions().items() if end > at.get(part, 0)}
        except LakeError:
            ahead = {}
        if ahead:
            (part, end), *_ = sorted(ahead.items())
            yield Finding("damage", pointer, f"names older tables than there are: those in {tables.url} are ahead, at "
                          f"{end} of {part[0]}-{part[1]} where the lake is at {at.get(part, 0)}",
                          "restore the file; or the sink adds to these what is missing: it is all in the log")
        else:
            yield Finding("note", tables.url, "tables that nothing names", "remove the folder: nobody reads it")


def _of_positions(lake: Lake, log_ends: Mapping[TopicPartition, int],
                  log_starts: Mapping[TopicPartition, int]) -> Iterator[Finding]:
    at = lake.positions()
    for (topic, number), start in sorted(log_starts.items()):
        if (position := at.get((topic, number), 0)) < start:
            yield Finding("damage", f"{topic}-{number}", f"the lake is at {position}, the log begins at {start}: "
                          f"{start - position} offsets were trimmed before they were in the lake",
                          "restore the log; else `headrace lake rebuild --accept-loss` goes on without them")
    for part, position in sorted(at.items()):
        if log_ends and position > log_ends.get(part, 0):
            yield Finding("damage", f"{part[0]}-{part[1]}", f"the lake is at {position}, the log ends at "
                          f"{log_ends.get(part, 0)}: it lost its end, or the position was changed",
                          "restore the log, if it lost it: the lake has what is lost; else " + REBUILD)
    yield from _of_promises(lake, log_ends)
    if waiting := sum(max(0, end - at.get(part, 0)) for part, end in log_ends.items()):
        yield Finding("note", lake.folder.url, f"{waiting} events of the log are not in the lake yet",
                      "`headrace sink --until-idle` copies them")
    for name in TABLES:
        ahead = {part: end for part, end in lake.positions(name).items() if end > at.get(part, 0)}
        if name != "events" and ahead:
            yield Finding("note", name, "is ahead of `events`: a flush is under way, or died between two tables",
                          "nothing: the next flush goes on there, and readers see neither")
    try:
        for table, missing in behind(lake):
            yield Finding("damage", table, f"is behind `events`: {missing} events have no row in it",
                          "`headrace lake verify` names them; " + REBUILD)
    except HeadraceError as wrong:
        yield Finding("damage", lake.folder.url, str(wrong), wrong.hint or REBUILD)


def _of_promises(lake: Lake, log_ends: Mapping[TopicPartition, int]) -> Iterator[Finding]:
    """What each table says of itself, against what `events` says of it and against the log."""
    for name, wrong in lake.unkept():
        yield Finding("damage", name, wrong, REBUILD)
    for name in TABLES:
        beyond = {part: end for part, end in lake.positions(name).items() if end > log_ends.get(part, 0)}
        if name != "events" and log_ends and beyond:
            (part, end), *_ = sorted(beyond.items())
            yield Finding("damage", name, f"says it is at {end} of {part[0]}-{part[1]}, where the log ends at "
                          f"{log_ends.get(part, 0)}: it would refuse rows that it does not have", REBUILD)
