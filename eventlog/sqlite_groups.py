"""Consumer groups of the SQLite log: members and the partitions they own are lease rows.

A member renews its lease from the log's writing thread; one that stopped is removed by any other member once its
lease has run out. Every member works out the same range assignment from the live members, gives back first what is no
longer its own, then takes what is free: a partition has one owner row at any time. A static member that
comes back takes its row and its partitions over at once; the older process of that name is fenced.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import apsw

from eventlog.log import TopicPartition
from eventlog.sqlite_writer import Topic, Writer
from schemas.errors import LogError
from schemas.ids import new_id, wall_us

LEASE_S = 6.0
MAX_POLL_INTERVAL_S = 300.0
"""A member that has not polled for so long counts as stuck: its lease is renewed no more."""
_LOOK_S = 0.05
_FULL_LOOK_S = 0.5


class View(NamedTuple):
    """What a member should do: keep these of its partitions, then settle."""

    keep: frozenset[TopicPartition]
    fenced: bool = False


def range_assignment(member: str, members: Mapping[str, Iterable[str]],
                     partitions: Mapping[str, int]) -> frozenset[TopicPartition]:
    """Kafka's range rule: contiguous shares of each topic by the order of member ids, so topics of equal partition
    count stay together."""
    mine: set[TopicPartition] = set()
    for topic, count in partitions.items():
        readers = sorted(name for name, topics in members.items() if topic in topics)
        if member not in readers:
            continue
        index, (share, extra) = readers.index(member), divmod(count, len(readers))
        first = index * share + min(index, extra)
        mine.update((topic, part) for part in range(first, first + share + (index < extra)))
    return frozenset(mine)


class Membership:
    """One member of a group. `look` reads, `settle` writes; both belong to the subscription's thread."""

    interval_s = _LOOK_S

    def __init__(self, writer: Writer, reader: apsw.Connection, group: str, member: str | None,
                 topics: Iterable[Topic], lease_s: float = LEASE_S) -> None:
        self.group, self.member = group, member or new_id()
        self._writer, self._reader = writer, reader
        self._partitions = {topic.name: topic.partitions for topic in topics}
        self._lease_us = int(lease_s * 1e6)
        self._session = ""
        self._generation = -1
        self._settled = False
        self._looked = 0.0
        self._polled = time.monotonic()
        self._join()
        self._stop_renewing = writer.every(lease_s / 4, self._renew)

    def look(self, held: frozenset[TopicPartition]) -> View | None:
        """None when there is nothing to do."""
        self._polled = now = time.monotonic()
        generation = self._ask("select generation from groups where name = ?", self.group)
        if generation == self._generation and self._settled and now - self._looked < _FULL_LOOK_S:
            return None
        self._looked = now
        session = self._ask("select session from members where grp = ? and member = ?", self.group, self.member)
        if session is not None and session != self._session:
            return View(frozenset(), fenced=True)
        if session is None:  # Removed by others after a pause longer than the lease.
            self._join()
            return View(frozenset())
        live = live_members(self._reader, self.group, keep=self.member)
        wanted = range_assignment(self.member, live, self._partitions)
        expired = len(live) < self._ask("select count(*) from members where grp = ?", self.group)
        if generation == self._generation and wanted == held and not expired:
            self._settled = True
            return None
        self._generation = generation
        return View(held & wanted)

    def settle(self, held: frozenset[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Own exactly `held` and whatever else is due to us and free. Gives partition to committed offset."""
        job = self._writer.run(lambda connection: self._settle(connection, held))
        owned: dict[TopicPartition, int | None] = job.result()
        self._settled = True
        return owned

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        rows = [(self.group, topic, part, offset, self.group, topic, part, self.member, self.group, self.member,
                 self._session) for (topic, part), offset in offsets.items()]
        self._writer.run(lambda connection: connection.executemany(
            "insert or replace into commits select ?, ?, ?, ? where exists"
            " (select 1 from owners where grp = ? and topic = ? and partition = ? and member = ?)"
            " and exists (select 1 from members where grp = ? and member = ? and session = ?)", rows) and None)

    def leave(self) -> None:
        self._stop_renewing()
        with contextlib.suppress(LogError):  # A closed log: the lease runs out by itself.
            self._writer.run(self._leave).result()

    def _ask(self, query: str, *values: str) -> Any:
        return self._reader.execute(query, values).get

    def _join(self) -> None:
        self._session, self._generation, self._settled = new_id(), -1, False
        self._writer.run(self._write_member).result()

    def _write_member(self, connection: apsw.Connection) -> None:
        row = (self.group, self.member, self._session, " ".join(self._partitions), wall_us(), self._lease_us)
        connection.execute("insert or replace into members values (?, ?, ?, ?, ?, ?)", row)
        _bump(connection, self.group)

    def _renew(self, connection: apsw.Connection) -> None:
        if time.monotonic() - self._polled < MAX_POLL_INTERVAL_S:
            connection.execute("update members set renewed_us = ? where grp = ? and member = ? and session = ?",
                               (wall_us(), self.group, self.member, self._session))

    def _settle(self, connection: apsw.Connection, held: frozenset[TopicPartition]) -> dict[TopicPartition, int | None]:
        key = (self.group, self.member)
        session = connection.execute("select session from members where grp = ? and member = ?", key).get
        if session != self._session:
            self._generation = -1  # Fenced or removed meanwhile: the next look says which.
            return {}
        live = live_members(connection, self.group, keep=self.member)
        before = connection.total_changes()
        for (name,) in connection.execute("select member from members where grp = ?", (self.group,)).fetchall():
            if name not in live:
                connection.execute("delete from members where grp = ? and member = ?", (self.group, name))
                connection.execute("delete from owners where grp = ? and member = ?", (self.group, name))
        owners = {(topic, part): member for topic, part, member in connection.execute(
            "select topic, partition, member from owners where grp = ?", (self.group,)).fetchall()}
        wanted = range_assignment(self.member, live, self._partitions)
        owned = {part for part in wanted | held if owners.get(part, self.member) == self.member}
        for topic, part in {part for part, owner in owners.items() if owner == self.member} - owned:
            connection.execute("delete from owners where grp = ? and topic = ? and partition = ?",
                               (self.group, topic, part))
        for topic, part in owned - owners.keys():
            connection.execute("insert into owners values (?, ?, ?, ?)", (self.group, topic, part, self.member))
        if connection.total_changes() != before:
            _bump(connection, self.group)
        self._generation = connection.execute("select generation from groups where name = ?", (self.group,)).get
        query = "select next_offset from commits where grp = ? and topic = ? and partition = ?"
        return {part: connection.execute(query, (self.group, *part)).get for part in owned}

    def _leave(self, connection: apsw.Connection) -> None:
        key = (self.group, self.member)
        if connection.execute("select session from members where grp = ? and member = ?", key).get == self._session:
            connection.execute("delete from members where grp = ? and member = ?", key)
            connection.execute("delete from owners where grp = ? and member = ?", key)
            _bump(connection, self.group)


def live_members(connection: apsw.Connection, group: str, keep: str = "") -> dict[str, list[str]]:
    """Live members and what they read. A clock that stepped back makes a lease look old too; it heals on renewal."""
    now = wall_us()
    rows = connection.execute("select member, topics, renewed_us, lease_us from members where grp = ?", (group,))
    return {member: topics.split(" ") for member, topics, renewed, lease in rows
            if member == keep or abs(now - renewed) < lease}


def _bump(connection: apsw.Connection, group: str) -> None:
    connection.execute("insert into groups values (?, 1) on conflict (name) do update set generation = generation + 1",
                       (group,))
