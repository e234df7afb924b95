"""What `--as-of` may name: a snapshot, a moment, or the snapshot of a batch; each becomes an offset vector.

* a snapshot: JSON or a file with it (a batch's manifest will do), or `topic-partition:offset,...`
* a moment in ISO 8601 (UTC unless it says otherwise): the newest snapshot that was committed at or before it, by the
  times of the commits. Not by the times of events: those come from many clocks, and history that is imported is old.
* `batch:ID`: the snapshot from which the batch was sealed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lake.snapshot import parse_snapshot, require_reached, snapshot_of
from lake.timeline import first_ms, vector_at
from schemas.errors import LakeError, NotFoundError, UserError

if TYPE_CHECKING:
    from lake.lake import Lake

_ENTRY = re.compile(r"([a-z][a-z-]*-\d+):(\d+)")
_MOMENT = re.compile(r"\d{4}-?\d\d")
_FORMS = "write JSON or a file of it, `topic-partition:offset,...`, a time like 2026-12-01T08:30:00Z, or batch:ID"
_BATCH = "select snapshot from batches where batch_id = $batch"


def snapshot_named(lake: Lake, text: str, batch_id: Callable[[str], str] = lambda prefix: prefix) -> dict[str, int]:
    """The offset vector. `batch_id` makes a whole id of a prefix. Raises UserError, NotFoundError or QueryError."""
    text = text.strip()
    if text.startswith("batch:"):
        snapshot = _of_batch(lake, batch_id(text.removeprefix("batch:")))
    elif text.startswith("{"):
        snapshot = _of_json(text, "--as-of")
    elif all(_ENTRY.fullmatch(entry.strip()) for entry in text.split(",")):
        snapshot = {match[1]: int(match[2]) for match in _ENTRY.finditer(text)}
    elif _MOMENT.match(text):
        snapshot = _of_moment(lake, text)
    elif Path(text).is_file():
        snapshot = _of_file(lake, Path(text))
    else:
        raise UserError("no snapshot, time or batch", where="--as-of", value=text, hint=_FORMS)
    try:
        wanted = parse_snapshot(snapshot)
    except LakeError as wrong:
        raise UserError(wrong.what, where="--as-of", value=wrong.value, hint=wrong.hint) from None
    require_reached(wanted, lake.positions())
    return snapshot


def _of_batch(lake: Lake, batch: str) -> dict[str, int]:
    found = lake.sql(_BATCH, None, {"batch": batch}).to_pylist()
    if not found:
        raise NotFoundError("no such batch", where="--as-of", value=batch, hint="`headrace batches ls` lists them")
    return dict(found[0]["snapshot"])


def _of_file(lake: Lake, path: Path) -> dict[str, int]:
    try:
        text = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as wrong:
        raise UserError(f"file cannot be read ({wrong})", where="--as-of", value=str(path), hint=_FORMS) from None
    if text.startswith("{"):
        return _of_json(text, str(path))
    if all(_ENTRY.fullmatch(entry.strip()) for entry in text.split(",")):
        return {match[1]: int(match[2]) for match in _ENTRY.finditer(text)}
    raise UserError("the file holds no snapshot", where="--as-of", value=str(path), hint=_FORMS)


def _of_json(text: str, where: str) -> dict[str, int]:
    try:
        found: Any = json.loads(text)
    except ValueError as wrong:
        raise UserError(f"not JSON ({wrong})", where=where, value=text[:100], hint=_FORMS) from None
    if isinstance(found, dict) and isinstance(found.get("snapshot"), dict):
        found = found["snapshot"]
    if not isinstance(found, dict) or not all(type(offset) is int for offset in found.values()):
        raise UserError("a snapshot maps `topic-partition` to the next offset", where=where, value=text[:100])
    return found


def _of_moment(lake: Lake, text: str) -> dict[str, int]:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UserError("not a time", where="--as-of", value=text, hint=_FORMS) from None
    at = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    positions = vector_at(lake, int(at.timestamp() * 1000))
    if not positions:
        first = first_ms(lake)
        hint = f"its first snapshot is of {_written(first)}" if first else "nothing was recorded yet"
        raise NotFoundError("the lake held nothing at that time", where="--as-of", value=text, hint=hint)
    return snapshot_of(positions)


def _written(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
