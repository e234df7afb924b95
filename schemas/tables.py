"""Arrow schemas of the lake's tables. Every row ends with the position of the event that completed it.

Times are timestamp[us, UTC]; token ids list<int32>, logprobs list<float32>; counts int64. Facts that may be
written twice keep their `event_id`, and views resolve them first-id-wins.
"""

from __future__ import annotations

import pyarrow as pa

TIME = pa.timestamp("us", tz="UTC")
_TEXT, _COUNT, _REAL, _FLAG, _SMALL = pa.string(), pa.int64(), pa.float64(), pa.bool_(), pa.int64()
_Columns = list[tuple[str, pa.DataType]]
POSITION: _Columns = [("topic", _TEXT), ("partition", pa.int32()), ("offset", _COUNT)]
FACT: _Columns = [("event_id", _TEXT), *POSITION]


def _schema(columns: _Columns, tail: _Columns = POSITION) -> pa.Schema:
    return pa.schema([*columns, *tail])


TABLES: dict[str, pa.Schema] = {
    "requests": _schema([
        ("episode_id", _TEXT), ("run_id", _TEXT), ("group_id", _TEXT), ("task_id", _TEXT), ("kind", _TEXT),
        ("purpose", _TEXT), ("policy", _TEXT), ("sample_index", _COUNT), ("priority", _COUNT),
        ("requested_at", TIME), ("task_digest", _TEXT)], FACT),
    "cancellations": _schema([("episode_id", _TEXT), ("reason", _TEXT), ("requested_at", TIME)], FACT),
    "episodes": _schema([
        ("episode_id", _TEXT), ("run_id", _TEXT), ("group_id", _TEXT), ("task_id", _TEXT), ("kind", _TEXT),
        ("purpose", _TEXT), ("policy", _TEXT), ("version_min", _COUNT), ("version_max", _COUNT), ("attempt", _COUNT),
        ("termination", _TEXT), ("failure_kind", _TEXT), ("turns", _COUNT), ("tool_calls", _COUNT),
        ("context_token_count", _COUNT), ("generated_token_count", _COUNT), ("answer", _TEXT), ("workspace", _TEXT),
        ("submission", _TEXT), ("started_at", TIME), ("finished_at", TIME), ("sample_index", _COUNT),
        ("task_digest", _TEXT), ("requested_at", TIME)]),
    "turns": _schema([
        ("episode_id", _TEXT), ("turn", _COUNT), ("segment", _COUNT), ("attempt", _COUNT),
        ("context_tokens", pa.list_(pa.int32())), ("generated_tokens", pa.list_(pa.int32())),
        ("logprobs", pa.list_(pa.float32())), ("version_min", _COUNT), ("version_max", _COUNT), ("text", _TEXT),
        ("finish_reason", _TEXT), ("started_at", TIME), ("finished_at", TIME), ("prefix", _TEXT)]),
    "tool_calls": _schema([
        ("episode_id", _TEXT), ("turn", _COUNT), ("call_id", _TEXT), ("tool", _TEXT), ("arguments", _TEXT),
        ("status", _TEXT), ("exit_code", _COUNT), ("attempt", _COUNT), ("output", _TEXT), ("output_bytes", _COUNT),
        ("truncated", _FLAG), ("workspace", _TEXT), ("started_at", TIME), ("finished_at", TIME),
        ("duration_s", _REAL)]),
    "scores": _schema([
        ("score_id", _TEXT), ("episode_id", _TEXT), ("submission", _TEXT), ("verifier", _TEXT),
        ("verifier_digest", _TEXT), ("status", _TEXT), ("reward", _REAL),
        ("components", pa.map_(_TEXT, _REAL)), ("evidence", _TEXT), ("supersedes", _TEXT), ("cause", _TEXT),
        ("scored_at", TIME), ("started_at", TIME), ("seed", _COUNT), ("run_id", _TEXT), ("task_id", _TEXT)], FACT),
    "batches": _schema([
        ("batch_id", _TEXT), ("run_id", _TEXT), ("step", _COUNT), ("version", _COUNT), ("episodes", _COUNT),
        ("sequences", _COUNT), ("tokens", _COUNT), ("packing", _TEXT), ("snapshot", pa.map_(_TEXT, _COUNT)),
        ("sha256", _TEXT), ("sealed_at", TIME), ("manifest", _TEXT)], FACT),
    "batch_rows": _schema([
        ("batch_id", _TEXT), ("episode_id", _TEXT), ("segment", _COUNT), ("sequence", _COUNT), ("position", _COUNT),
        ("tokens", _COUNT), ("trained_tokens", _COUNT), ("reward", _REAL), ("advantage", _REAL)], FACT),
    "batch_dispositions": _schema([
        ("run_id", _TEXT), ("episode_id", _TEXT), ("disposition", _TEXT), ("reason", _TEXT),
        ("batch_id", _TEXT)], FACT),
    "steps": _schema([
        ("run_id", _TEXT), ("step", _COUNT), ("batch_id", _TEXT), ("loss", _REAL), ("grad_norm", _REAL), ("kl", _REAL),
        ("entropy", _REAL), ("clip_fraction", _REAL), ("tokens", _COUNT), ("wait_s", _REAL), ("duration_s", _REAL),
        ("at", TIME), ("metrics", pa.map_(_TEXT, _REAL)), ("checkpoint", _TEXT)], FACT),
    "weights": _schema([
        ("run_id", _TEXT), ("version", _COUNT), ("digest", _TEXT), ("path", _TEXT), ("published_at", TIME),
        ("step", _COUNT)], FACT),
    "tasks": _schema([
        ("task_id", _TEXT), ("kind", _TEXT), ("set", _TEXT), ("digest", _TEXT), ("difficulty", _REAL),
        ("expected_duration_s", _REAL), ("quarantined", _FLAG), ("reason", _TEXT), ("verifier", _TEXT),
        ("registered_at", TIME)], FACT),
    "dead_letters": pa.schema([
        ("topic", _TEXT), ("partition", pa.int32()), ("offset", _COUNT), ("reason", _TEXT), ("data", pa.binary()),
        ("at", TIME)]),
    "redrives": pa.schema([("topic", _TEXT), ("partition", pa.int32()), ("offset", _COUNT), ("at", TIME)]),
    "events": pa.schema([
        ("id", _TEXT), ("type", _TEXT), ("version", pa.int32()), ("subject", _TEXT), ("sequence", _COUNT),
        ("source", _TEXT), ("run_id", _TEXT), *POSITION, ("time", TIME), ("admitted", _FLAG), ("reason", _TEXT),
        ("data", pa.binary())]),
}
"""`events` commits last in every flush: its application transactions are the snapshot. `dead_letters` rows carry
the position of the record that was refused; `redrives` says which of them have become rows since."""
COMMIT_ORDER = tuple(TABLES)
