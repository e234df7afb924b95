"""What each event becomes in the tables of the lake: pure functions from a payload to rows.

A row is a tuple in the column order of `schemas.tables.TABLES`. Rows depend on the log alone (never on the clock, the
process or the flush), so a rebuilt lake has the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from schemas.codec import finite_or_none
from schemas.envelope import Event, Position
from schemas.events import (
    BatchSealed,
    CancelRequested,
    EpisodeFinished,
    EpisodeRequested,
    Payload,
    ScoreRecorded,
    StepCompleted,
    TaskRegistered,
    ToolCalled,
    ToolReturned,
    TurnGenerated,
    WeightsPublished,
)
from schemas.head import EpisodeHead


class Row(NamedTuple):
    table: str
    values: tuple[Any, ...]


class Place(NamedTuple):
    """Where an event lies and what its episode's head knew: all that a row needs beside the payload."""

    event: Event
    position: Position
    head: EpisodeHead | None = None
    open_call: ToolCalled | None = None

    @property
    def fact(self) -> tuple[Any, ...]:
        return (self.event.id, *self.position)


def rows_of(payload: Payload, place: Place) -> list[Row]:
    """Rows of an admitted event, without those of `events` and of batch manifests."""
    make = _MAKERS.get(type(payload))
    return [make(payload, place)] if make else []


def event_row(event: Event, position: Position, run_id: str | None, admitted: bool, reason: str) -> Row:
    name, version = event.name, event.version
    return Row("events", (event.id, name, version, event.subject, event.sequence, event.source, run_id, *position,
                          event.time_us, admitted, reason, event.data))


def dead_letter(position: Position, reason: str, data: bytes, at_us: int | None) -> Row:
    return Row("dead_letters", (*position, reason, data, at_us))


def _request(payload: EpisodeRequested, place: Place) -> Row:
    return Row("requests", (
        payload.episode_id, payload.run_id, payload.group_id, payload.task_id, payload.kind, payload.purpose,
        payload.policy, payload.sample_index, payload.priority, payload.requested_at, payload.task_digest, *place.fact))


def _cancellation(payload: CancelRequested, place: Place) -> Row:
    return Row("cancellations", (payload.episode_id, payload.reason, payload.at or place.event.time_us, *place.fact))


def _episode(payload: EpisodeFinished, place: Place) -> Row:
    head = place.head or EpisodeHead(place.event.subject)
    started = head.started
    about = (started.run_id, started.group_id, started.task_id, started.kind, started.purpose, started.policy) \
        if started else (None,) * 6
    more = (started.sample_index, started.task_digest, started.requested_at or None) if started else (None,) * 3
    return Row("episodes", (
        place.event.subject, *about, head.version_min, head.version_max, head.attempt, payload.termination,
        payload.failure_kind, payload.turns, payload.tool_calls, payload.context_token_count,
        payload.generated_token_count, payload.answer, payload.workspace,
        payload.submission.digest if payload.submission else None, started.at if started else None, payload.at,
        *more, *place.position))


def _turn(payload: TurnGenerated, place: Place) -> Row:
    versions = [version for version, _ in payload.versions]
    return Row("turns", (
        place.event.subject, payload.turn, payload.segment, place.head.attempt if place.head else 1, payload.context,
        payload.generated, payload.logprobs, min(versions, default=None), max(versions, default=None), payload.text,
        payload.finish_reason, payload.started_at, payload.finished_at, payload.prefix, *place.position))


def _tool_call(payload: ToolReturned, place: Place) -> Row:
    called = place.open_call
    return Row("tool_calls", (
        place.event.subject, payload.turn, payload.call_id, called.tool if called else None,
        called.arguments if called else None, payload.status, payload.exit_code, payload.attempt, payload.output,
        payload.output_bytes, payload.truncated, payload.workspace, called.at if called else None, payload.at,
        finite_or_none(payload.duration_s), *place.position))


def _score(payload: ScoreRecorded, place: Place) -> Row:
    return Row("scores", (
        payload.score_id, payload.episode_id, payload.submission, payload.verifier, payload.verifier_digest,
        payload.status, finite_or_none(payload.reward), _numbers(payload.components),
        payload.evidence.digest if payload.evidence else None, payload.supersedes, payload.cause, payload.finished_at,
        payload.started_at, payload.seed, payload.run_id or None, payload.task_id or None, *place.fact))


def _batch(payload: BatchSealed, place: Place) -> Row:
    return Row("batches", (
        payload.batch_id, payload.run_id, payload.step, payload.version, payload.episodes, payload.sequences,
        payload.tokens, payload.packing, list(payload.snapshot.items()), payload.sha256,
        payload.at or place.event.time_us, payload.manifest.digest, *place.fact))


def _step(payload: StepCompleted, place: Place) -> Row:
    metrics = payload.metrics
    tokens = finite_or_none(metrics.get("tokens"))
    named = (finite_or_none(metrics.get(name)) for name in ("loss", "grad_norm", "kl", "entropy", "clip_fraction"))
    return Row("steps", (
        payload.run_id, payload.step, payload.batch_id, *named, None if tokens is None else int(tokens),
        finite_or_none(payload.wait_s), finite_or_none(payload.duration_s), payload.at or place.event.time_us,
        _numbers(metrics), payload.checkpoint, *place.fact))


def _weights(payload: WeightsPublished, place: Place) -> Row:
    return Row("weights", (payload.run_id, payload.version, payload.digest, payload.path,
                           payload.at or place.event.time_us, payload.step, *place.fact))


def _task(payload: TaskRegistered, place: Place) -> Row:
    return Row("tasks", (
        payload.task_id, payload.kind, payload.set, payload.digest, payload.difficulty, payload.expected_duration_s,
        payload.quarantined, payload.reason or None, payload.verifier, payload.at or place.event.time_us, *place.fact))


def _numbers(values: Mapping[str, float]) -> list[tuple[str, float | None]]:
    return [(name, finite_or_none(value)) for name, value in values.items()]


_MAKERS: dict[type[Payload], Callable[[Any, Place], Row]] = {
    EpisodeRequested: _request, CancelRequested: _cancellation, EpisodeFinished: _episode, TurnGenerated: _turn,
    ToolReturned: _tool_call, ScoreRecorded: _score, BatchSealed: _batch, StepCompleted: _step,
    WeightsPublished: _weights, TaskRegistered: _task}
