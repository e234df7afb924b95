"""What the lake held when: the offset vector after each commit of `events`, by the time of the commit.

Commits of a table tell their time and which positions they moved. A lake that was built anew was filled in another
order at another time, so it takes along, in `timeline.json`, the commits of the lake of before: a question about a
time before the rebuild is answered from there.
"""

from __future__ import annotations

import msgspec

from artifacts.folder import Folder
from eventlog.log import TopicPartition
from lake.journal import list_table, read_entry
from lake.lake import Lake
from lake.snapshot import parse_snapshot, snapshot_of
from lake.tables import identity_of, open_table, table_exists
from lake.transactions import positions_of
from schemas.errors import LakeError

FILE = "timeline.json"
_REMOVE = "remove it: times before the last rebuild can then not be asked for"
Positions = dict[TopicPartition, int]


class Moment(msgspec.Struct, frozen=True, array_like=True):
    """One commit: when, in milliseconds, and the positions that it moved."""

    at: int
    moved: dict[str, int]


class Past(msgspec.Struct, frozen=True):
    """Of the lake of before: it was the lake until then."""

    until: int
    moments: list[Moment] = []


def vector_at(lake: Lake, at_ms: int) -> Positions:
    """The newest committed snapshot at or before; empty if there was none. Raises LakeError."""
    tables = lake.tables
    past = _past(tables)
    if past is not None and at_ms < past.until:
        positions: Positions = {}
        for moment in past.moments:
            if moment.at > at_ms:
                break
            positions.update(parse_snapshot(moment.moved))
        return positions
    return _own_vector(tables, at_ms)


def first_ms(lake: Lake) -> int | None:
    """When the first snapshot was committed; None in an empty lake."""
    past = _past(lake.tables)
    moments = past.moments if past and past.moments else moments_of(lake.tables)
    return moments[0].at if moments else None


def require_past(tables: Folder, reached: Positions) -> None:
    """Raises LakeError if what the tables inherited cannot be read, or tells of what was never there."""
    past = _past(tables)
    moments = past.moments if past else []
    times = [moment.at for moment in moments]
    moved = [(part, offset) for moment in moments for part, offset in parse_snapshot(moment.moved).items()]
    if times != sorted(times) or any(offset > reached.get(part, 0) for part, offset in moved):
        raise LakeError("the timeline tells of commits that never were", where=f"{tables.url}/{FILE}", hint=_REMOVE)


def inherit(old: Lake, new: Lake, until_ms: int) -> None:
    """Write down in the new lake what the old one held when."""
    try:
        past = _past(old.tables)
        own = [moment for moment in moments_of(old.tables) if past is None or moment.at >= past.until]
    except LakeError:  # It is rebuilt because it is damaged: what can be told starts now.
        past, own = None, []
    whole = Past(until_ms, [*(past.moments if past else []), *own])
    new.folder.write(FILE, msgspec.json.encode(whole))


def moments_of(tables: Folder) -> list[Moment]:
    """All commits of `events` that moved a position, in their order."""
    if not table_exists(tables, "events"):
        return []
    identity = identity_of(open_table(tables, "events"))
    folder = tables.at("events")
    found = []
    for version in sorted(list_table(folder).entries):
        at, transactions = _commit(folder, version)
        if moved := snapshot_of(positions_of(transactions, identity)):
            found.append(Moment(at, moved))
    return found


def _past(tables: Folder) -> Past | None:
    try:
        return msgspec.json.decode(tables.read(FILE), type=Past)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as wrong:
        raise LakeError(f"the timeline cannot be read ({wrong})", where=f"{tables.url}/{FILE}",
                        hint=_REMOVE) from None


def _own_vector(tables: Folder, at_ms: int) -> Positions:
    if not table_exists(tables, "events"):
        return {}
    handle = open_table(tables, "events")
    low, high = 0, handle.version()
    while low < high:  # The newest commit at or before, in the order of commits.
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _commit(tables.at("events"), middle)[0] <= at_ms else (low, middle - 1)
    identity = identity_of(handle)
    known = _names(tables, handle.version())
    old = open_table(tables, "events", low)
    entries = {name: version for name in known if (version := old.transaction_version(name)) is not None}
    return positions_of(entries, identity) if low else {}


def _names(tables: Folder, version: int) -> list[str]:
    from lake.transactions import LOG, read_transactions

    return list(read_transactions(tables.at("events").at(LOG), version).entries)


def _commit(folder: Folder, version: int) -> tuple[int, dict[str, int]]:
    """Time in milliseconds and application transactions of one commit."""
    try:
        actions = read_entry(folder, version)
    except (OSError, ValueError) as wrong:
        raise LakeError(f"an entry of the table's log cannot be read ({wrong})", where=folder.url,
                        hint="`headrace lake doctor` says which and what to do") from None
    times = [int(action["commitInfo"].get("timestamp") or 0) for action in actions if "commitInfo" in action]
    moved = {action["txn"]["appId"]: action["txn"]["version"] for action in actions if "txn" in action}
    return max(times, default=0), moved
