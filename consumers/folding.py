"""The sink's judgement of each record: admission, the fold of open episodes, rows, dead letters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from artifacts.store import ArtifactStore
from consumers.manifest import manifest_rows
from consumers.rows import Place, Row, dead_letter, event_row, rows_of
from eventlog.log import TopicPartition
from schemas.codec import decode_payload
from schemas.envelope import Event, Position, Record
from schemas.errors import ArtifactError, ArtifactStorageError, SchemaError
from schemas.events import BatchSealed, DeadLettered, Payload
from schemas.head import Heads
from schemas.topics import TRAJECTORIES

if TYPE_CHECKING:
    from lake.lake import Lake


class Folding:
    """Holds the heads of open episodes. Records must come in the order of offsets, each once."""

    def __init__(self, artifacts: ArtifactStore) -> None:
        self._artifacts = artifacts
        self._heads = Heads()

    def restore(self, lake: Lake, partitions: Iterable[int], as_of: Mapping[TopicPartition, int]) -> None:
        """Heads as they were when the lake stood at `as_of`, for these partitions of trajectories."""
        from lake.standing import Standing

        standing = Standing(lake, as_of, partitions)
        self._heads = Heads()
        self._heads.closed = standing.closed
        for _, event in standing.open_events():
            try:
                self._heads.see(event)
            except SchemaError:
                continue  # Its place in the sequence is taken all the same; its dead letter was written then.

    def rows(self, record: Record) -> list[Row]:
        """All rows that a record becomes."""
        position, event, raw = record
        if event is None:
            assert raw is not None
            return [dead_letter(position, raw.reason, raw.value, raw.time_us)]
        if position.topic == TRAJECTORIES:
            return self._of_episode(event, position)
        return self._of_fact(event, position)

    def _of_episode(self, event: Event, position: Position) -> list[Row]:
        head = self._heads.open.get(event.subject)
        try:
            seen = self._heads.see(event)
        except SchemaError as wrong:
            return _violation(event, position, head.started.run_id if head and head.started else None, str(wrong))
        run_id = seen.head.started.run_id if seen.head.started else None
        rows = [event_row(event, position, run_id, seen.admitted, seen.reason)]
        if seen.payload is None:
            return rows
        if seen.payload.TOPIC != TRAJECTORIES:
            return [*rows, _misplaced(event, position, seen.payload)]
        return rows + rows_of(seen.payload, Place(event, position, seen.head, seen.open_call))

    def _of_fact(self, event: Event, position: Position) -> list[Row]:
        try:
            payload = decode_payload(event)
        except SchemaError as wrong:
            return _violation(event, position, None, str(wrong))
        run_id = getattr(payload, "run_id", None) or None
        rows = [event_row(event, position, run_id, True, "")]
        if payload is None:
            return rows
        if position.topic != payload.TOPIC:
            return [*rows, _misplaced(event, position, payload)]
        place = Place(event, position)
        if isinstance(payload, DeadLettered):
            refused = f"{payload.topic}-{payload.partition}@{payload.offset}: {payload.reason}"
            return [*rows, dead_letter(position, refused, payload.data, payload.at or event.time_us)]
        rows += rows_of(payload, place)
        return rows + self._of_manifest(payload, place) if isinstance(payload, BatchSealed) else rows

    def _of_manifest(self, sealed: BatchSealed, place: Place) -> list[Row]:
        try:
            return manifest_rows(sealed, self._artifacts, place)
        except ArtifactStorageError:  # It may be there.
            raise
        except (ArtifactError, SchemaError) as wrong:
            reason = f"batch {sealed.batch_id}: {wrong}"
            return [dead_letter(place.position, reason, place.event.data, place.event.time_us)]


def _violation(event: Event, position: Position, run_id: str | None, reason: str) -> list[Row]:
    """Kept in `events` as it came, and told as a dead letter."""
    return [event_row(event, position, run_id, True, "schema_violation"),
            dead_letter(position, reason, event.data, event.time_us)]


def _misplaced(event: Event, position: Position, payload: Payload) -> Row:
    return dead_letter(position, f"{event.name} belongs to topic {payload.TOPIC}", event.data, event.time_us)
