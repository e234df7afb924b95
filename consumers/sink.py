"""The sink: copies the log into the lake, exactly once.

The lake is the authority on positions. Whatever goes wrong (a conflict with another sink, a failed write, partitions
that move) has one answer: drop what is buffered, ask the lake where it stands, seek there, restore the heads of open
episodes from its archive, go on. The group's committed offsets are for lag tools only.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from artifacts.store import ArtifactStore
from consumers.columns import RowBuffer
from consumers.folding import Folding
from eventlog.log import EventLog, Subscription, TopicPartition
from eventlog.member import static_member
from schemas.envelope import Record
from schemas.errors import ArtifactStorageError, CommitConflictError, HeadraceError, LakeError, LogError
from schemas.failpoints import hit
from schemas.settings import Settings
from schemas.topics import TOPICS, TRAJECTORIES

if TYPE_CHECKING:
    from lake.lake import Lake

Positions = dict[TopicPartition, int]
GROUP = "sink"
_POLL_S = 0.05
_POLL_RECORDS = 5000
_FLUSH_BYTES = 64 << 20
"""Of payloads in the buffer: beyond it a flush is due at once, so memory is bounded whatever the turns weigh."""
_MAX_FAILURES = 8
"""Failures in a row, without any progress, after which the sink gives up."""
_log = logging.getLogger("headrace.sink")


class Sink:
    """One writer of the lake. Several may run: partitions are shared, and the lake's commit settles every race."""

    def __init__(self, log: EventLog, lake: Lake, artifacts: ArtifactStore, settings: Settings, *,
                 member: str | None = None) -> None:
        """`member` names the static member of the group; by default a free one of this home and host."""
        self._log, self._lake, self._settings, self._member = log, lake, settings, member
        self._folding = Folding(artifacts)
        self._buffer = RowBuffer()
        self._payload_bytes = 0
        self._start: Positions = {}
        self._next: Positions = {}
        """Next offset wanted, by partition that is ours."""
        self._asked: dict[TopicPartition, tuple[int, int]] = {}
        """The newest gap of a partition, from and to, that was asked for again."""
        self._moved = True
        self._since = self._rested = 0.0
        self.flushes = self.conflicts = 0

    def run(self, stop: threading.Event, until_idle: bool = False) -> None:
        """Until `stop`, or until the lake covers what the log held when this was called.

        Raises LakeError or LogError after a number of failures without progress.
        """
        self._lake.bind(self._log.identity)
        self._moved = True
        target = self._log.ends(TOPICS) if until_idle else None
        named = nullcontext(self._member) if self._member else static_member(Path(self._settings.home), GROUP)
        with named as member:
            subscription = self._log.subscribe(TOPICS, GROUP, "earliest", member=member,
                                               on_assign=self._partitions_moved, on_revoke=self._partitions_moved)
            try:
                self._loop(subscription, stop, target)
            finally:
                subscription.close()

    def _loop(self, subscription: Subscription, stop: threading.Event, target: Positions | None) -> None:
        failures, flushes = 0, self.flushes
        while not stop.is_set():
            try:
                if self._turn(subscription) and target is not None and self._covers(target):
                    return
            except (LakeError, ArtifactStorageError, OSError) as wrong:
                self._moved = True
                self.conflicts += isinstance(wrong, CommitConflictError)
                failures = failures + 1 if self.flushes == flushes else 1
                flushes = self.flushes
                if failures >= _MAX_FAILURES:
                    raise
                _log.warning("starting over from the lake's position: %s", wrong)
                stop.wait(0.05 * 2 ** failures)
        if not self._moved:
            self._flush_last(subscription)

    def _flush_last(self, subscription: Subscription) -> None:
        """Asked to stop: a flush that fails now is no failure of this sink, the next one reads it all again."""
        try:
            self._flush(subscription)
        except (LakeError, ArtifactStorageError, OSError) as wrong:
            _log.warning("what was read last is left to the next sink: %s", wrong)

    def _turn(self, subscription: Subscription) -> bool:
        """One poll and, if it is time, one flush. True when nothing is left to read or to write."""
        records = subscription.poll(_POLL_S, min(_POLL_RECORDS, self._settings.sink_flush_rows))
        if self._moved:  # Records of this poll may lie beyond the lake's position: they will come again.
            self._start_over(subscription)
            return False
        jumped: dict[TopicPartition, bool] = {}
        for record in records:
            self._take(subscription, record, jumped)
        if not records:
            self._pass_marks(subscription)
        if self._due(idle=not records):
            self._flush(subscription)
        return not records and not self._pending()

    def _partitions_moved(self, partitions: frozenset[TopicPartition]) -> None:
        """Called from within poll. What is buffered may now be another sink's to write."""
        self._moved = True
        self._drop()

    def _start_over(self, subscription: Subscription) -> None:
        self._drop()
        ours = subscription.assignment()
        at = self._lake.positions()
        for part in ours:
            subscription.seek(part, at.get(part, 0))
        self._next = {part: at.get(part, 0) for part in ours}
        self._start = dict(self._next)
        written = {part: at[part] for part in ours if part in at}
        self._folding.restore(self._lake, [number for topic, number in ours if topic == TRAJECTORIES], written)
        self._moved = False

    def _drop(self) -> None:
        self._buffer.clear()
        self._payload_bytes = 0
        self._next = dict(self._start)

    def _take(self, subscription: Subscription, record: Record, jumped: dict[TopicPartition, bool]) -> None:
        """Buffer the rows of the record if it is the one that is wanted next. `jumped` says of the partitions whose
        offsets jumped in this poll whether that is how they are."""
        topic, number, offset = record.position
        part = (topic, number)
        wanted = self._next.get(part)
        if wanted is None or offset < wanted:  # Read before a seek took effect, or not ours any more.
            return
        if offset > wanted and not self._is_a_gap(subscription, part, (wanted, offset), jumped):
            return
        if not self._buffer.size:
            self._since = time.monotonic()
        self._buffer.add(self._folding.rows(record))
        self._payload_bytes += len(record.event.data) if record.event else len(record.raw.value) if record.raw else 0
        self._next[part] = offset + 1

    def _is_a_gap(self, subscription: Subscription, part: TopicPartition, jump: tuple[int, int],
                  jumped: dict[TopicPartition, bool]) -> bool:
        """Offsets are missing: once more from the wanted one. What is missing then is not there (trimmed, or marks of
        transactions), and so are further jumps of the same poll. The audit tells gaps apart."""
        if part not in jumped:
            jumped[part] = self._asked.get(part) == jump
            self._asked[part] = jump
            if not jumped[part]:
                _log.info("%s-%d: offsets %d to %d did not come; asking again", *part, jump[0], jump[1] - 1)
                subscription.seek(part, jump[0])
            elif jump[1] - jump[0] > 1:  # A single one is the mark that ends a transaction.
                _log.warning("%s-%d: the log has no offsets %d to %d; `headrace lake verify` tells if that is a loss",
                             *part, jump[0], jump[1] - 1)
        return jumped[part]

    def _pass_marks(self, subscription: Subscription) -> None:
        """Nothing came, and yet a reader is further: what lies between is no record (marks of transactions)."""
        for part, wanted in self._next.items():
            at = subscription.position(part)
            if at > wanted and self._is_a_gap(subscription, part, (wanted, at), {}):
                self._next[part] = at

    def _pending(self) -> bool:
        return self._next != self._start

    def _due(self, idle: bool) -> bool:
        if not self._pending():
            return False
        now = time.monotonic()
        if self._buffer.size >= self._settings.sink_flush_rows or self._payload_bytes >= _FLUSH_BYTES:
            return True
        return now >= self._rested and (idle or now - self._since >= self._settings.sink_flush_interval_s)

    def _flush(self, subscription: Subscription) -> None:
        if not self._pending():
            return
        began = time.monotonic()
        end = {part: offset for part, offset in self._next.items() if offset > self._start[part]}
        self._lake.commit(self._buffer.tables(), {part: self._start[part] for part in end}, end)
        self._start = dict(self._next)
        self._buffer.clear()
        self._payload_bytes = 0
        self.flushes += 1
        hit("sink:before_offset_commit")
        try:
            subscription.commit(end)
        except LogError as wrong:
            _log.info("group offsets were not committed, which only lag tools mind: %s", wrong)
        self._maintain()
        self._rested = time.monotonic() + (time.monotonic() - began)

    def _maintain(self) -> None:
        try:
            self._lake.maintain()
        except HeadraceError as wrong:
            _log.warning("compaction failed and changed nothing: %s", wrong)

    def _covers(self, target: Positions) -> bool:
        at = self._lake.positions()
        return all(at.get(part, 0) >= end for part, end in target.items())
