"""Why episodes ended as they did: a short reason for each, and the search through reasons and evidence."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.rooms import Rooms

_BELOW_ONE = """
array_to_string(list_transform(list_filter(map_entries(s.components),
    lambda c: c.value is null or case c.key when 'tampering' then c.value > 0 else c.value < 1 end),
  lambda c: c.key || ' ' || coalesce(round(c.value, 3)::varchar, 'none')), ', ')
"""
_SAID = ("what", "problem", "why", "candidate", "message")
"""Where evidence tells a reason in a line; `loaded` is none."""
_SAID_CHARACTERS = 120
_TOOLS = """
(select string_agg(status || ' (' || tool || ')', ', ') from (
  select distinct status, tool from tool_calls t where t.episode_id = e.episode_id and status <> 'ok' order by all))
"""
_LIST = f"""
select e.episode_id, e.kind, e.purpose, e.task_id, e.policy, e.termination, e.turns, e.tool_calls,
       s.status, s.reward, nullif(concat_ws('; ', nullif(e.termination, 'completed'), e.failure_kind,
         nullif(s.status, 'ok'), nullif({_BELOW_ONE}, ''), {_TOOLS}), '') as why, e.finished_at, s.evidence
from episodes e left join current_scores s using (episode_id)
where ($kind = '' or e.kind = $kind) and ($run = '' or e.run_id = $run)
  and (not $failed or s.reward is null or s.reward < 1)
order by e.finished_at desc, e.episode_id
"""


def episodes(rooms: Rooms, parameters: Mapping[str, object], why: str, limit: int) -> pa.Table:
    """The newest episodes, with what kept each from the full reward; with `why`, those whose reason or evidence says
    it, in any case of letters."""
    import pyarrow as pa

    if not why:
        return _told(rooms, rooms.lake.sql(f"select * from ({_LIST}) limit {limit}", parameters=dict(parameters)))
    found: list[pa.RecordBatch] = []
    schema = None
    for batch in rooms.lake.batches(_LIST, parameters=dict(parameters)):
        schema = batch.schema
        wanted = [row for row in range(batch.num_rows) if _says(rooms, batch, row, why.casefold())]
        found.append(batch.take(pa.array(wanted, pa.int64())))
        if sum(part.num_rows for part in found) >= limit:
            break
    table = pa.Table.from_batches(found, schema) if schema else rooms.lake.sql(
        f"select * from ({_LIST}) limit 0", parameters=dict(parameters))
    return _told(rooms, table.slice(0, limit))


def _told(rooms: Rooms, table: pa.Table) -> pa.Table:
    """The reasons with what the evidence of each failure says in a line, in place of its digest."""
    import pyarrow as pa

    reasons: list[str | None] = []
    for reason, digest in zip(table["why"].to_pylist(), table["evidence"].to_pylist(), strict=True):
        details = evidence_of(rooms, digest).get("details") if reason and digest else None
        said = [details[name] for name in _SAID if details.get(name)] if isinstance(details, dict) else []
        lines = [line[:_SAID_CHARACTERS] for line in said if isinstance(line, str) and line != "loaded"]
        reasons.append("; ".join([reason, *lines]) if lines else reason)
    place = table.column_names.index("why")
    return table.set_column(place, "why", pa.array(reasons, pa.string())).drop_columns(["evidence"])


def _says(rooms: Rooms, batch: pa.RecordBatch, row: int, why: str) -> bool:
    reason = batch.column("why")[row].as_py() or ""
    if why in reason.casefold():
        return True
    digest = batch.column("evidence")[row].as_py()
    return bool(digest) and any(why in text.casefold() for text in _texts(evidence_of(rooms, digest).get("details")))


def evidence_of(rooms: Rooms, digest: str) -> dict[str, Any]:
    """The evidence as data; empty where the artifact is gone or is none."""
    from schemas.errors import ArtifactError

    try:
        found = json.loads(rooms.artifacts.get(digest))
    except (ArtifactError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _texts(value: object) -> Iterator[str]:
    """Every text in it, names too, and numbers as they are written."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield str(key)
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif value is not None:
        yield str(value)
