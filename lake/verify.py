"""The audit of a lake: each check is one query that finds what should not be there, told in a sentence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from lake import generation
from lake.files import live_files
from lake.gaps import gaps
from lake.snapshot import snapshot_of
from lake.tables import IDENTITY_KEY, REBUILD, open_table, table_exists
from lake.transactions import LOG, first_line, read_transactions
from schemas.errors import ArtifactError, ArtifactStorageError, LakeError
from schemas.events import PAYLOADS
from schemas.tables import TABLES

if TYPE_CHECKING:
    import pyarrow as pa

    from lake.lake import Lake

_LISTED = 5
_UNTOLD = " (only the log can tell rows that were lost from marks of transactions)"
_ONE_ROW_EACH = {
    "episode.requested": "requests", "episode.cancel_requested": "cancellations", "task.registered": "tasks",
    "turn.generated": "turns", "tool.returned": "tool_calls", "episode.finished": "episodes",
    "score.recorded": "scores", "batch.sealed": "batches", "step.completed": "steps", "weights.published": "weights"}
"""Event type to the table in which each admitted event has exactly one row."""
_MANIFEST_TABLES = ("batch_rows", "batch_dispositions")


def _rows(tables: Iterable[tuple[str, str]]) -> str:
    """Positions of all rows of (event type, table) pairs."""
    return " union all ".join(
        f"select '{table}' as name, '{kind}' as type, topic, partition, \"offset\" from raw_{table}"
        for kind, table in tables)


_ONE_EACH = _rows(_ONE_ROW_EACH.items())
_MADE_OF_EVENTS = _rows([*_ONE_ROW_EACH.items(), *(("batch.sealed", table) for table in _MANIFEST_TABLES)])
_NEWEST = {payload.NAME: payload.VERSION for payload in PAYLOADS}
_TYPES = ", ".join(f"('{kind}', '{table}', {_NEWEST[kind]})" for kind, table in _ONE_ROW_EACH.items())
"""With the newest version that this release makes rows of: newer ones are carried in `events` alone."""

_BEYOND = """
select topic || '-' || partition || ': the row at offset ' || "offset" || ' in ' || name || ' lies beyond offset ' ||
  coalesce(stop, 0) || ', where the lake stands'
from ({rows}) left join (
  select unnest($topics) as topic, unnest($partitions) as partition, unnest($offsets) as stop) using (topic, partition)
where "offset" >= coalesce(stop, 0) order by topic, partition, "offset"
"""
_NAMELESS = """
select topic || '-' || partition || ': the event at offset ' || "offset" || ' lacks its id, source, type, subject, '
  || 'sequence or time'
from raw_events where id is null or source is null or type is null or subject is null or sequence is null
  or time is null or admitted is null order by 1
"""
_TWICE = f"""
select topic || '-' || partition || ': offset ' || "offset" || ' is there ' || count(*) || ' times in ' || name
from ({_ONE_EACH} union all select 'events', '', topic, partition, "offset" from raw_events)
group by name, topic, partition, "offset" having count(*) > 1 order by name, topic, partition, "offset"
"""
_SEQUENCES = """
select 'episode ' || subject || ': ' || count(*) || ' admitted events, sequences ' || min(sequence)
  || ' to ' || max(sequence)
from raw_events where topic = 'trajectories' and admitted group by subject
having min(sequence) <> 0 or max(sequence) <> count(*) - 1 or count(distinct sequence) <> count(*) order by subject
"""
_ROW_WITHOUT_EVENT = f"""
select t.name || ': the row at ' || t.topic || '-' || t.partition || ' offset ' || t."offset"
  || ' has no admitted ' || t.type || ' event'
from ({_MADE_OF_EVENTS}) t anti join (select * from raw_events where admitted) e
  using (topic, partition, "offset", type) order by t.name, t.topic, t.partition, t."offset"
"""
_EVENT_WITHOUT_ROW = f"""
select k.name || ': no row for the ' || e.type || ' event at ' || e.topic || '-' || e.partition
  || ' offset ' || e."offset"
from raw_events e join (values {_TYPES}) k(type, name, newest) on e.type = k.type and e.version between 1 and k.newest
  anti join ({_ONE_EACH}) t on t.topic = e.topic and t.partition = e.partition and t."offset" = e."offset"
    and t.name = k.name
  anti join (select * from dead_letters where redriven_at is null) d
    on d.topic = e.topic and d.partition = e.partition and d."offset" = e."offset"
where e.admitted order by k.name, e.topic, e.partition, e."offset"
"""
_MANIFESTS = """
select 'batch ' || b.batch_id || ': ' || b.episodes || ' episodes were sealed, ' || count(distinct r.episode_id)
  || ' are in batch_rows'
from batches b left join batch_rows r using (batch_id)
anti join (select * from dead_letters where redriven_at is null) d
  on d.topic = b.topic and d.partition = b.partition and d."offset" = b."offset"
group by b.batch_id, b.episodes having count(distinct r.episode_id) <> b.episodes order by 1
"""
_DECIDED = """
select 'episode ' || d.episode_id || ' of run ' || d.run_id || ': decided ' || count(*) || ' times by sealed batches'
from raw_batch_dispositions d semi join batches using (topic, partition, "offset")
group by d.run_id, d.episode_id having count(*) > 1 order by 1
"""
_STRANGERS = """
select 'batch ' || d.batch_id || ' decides episode ' || d.episode_id || ', which ' ||
  case when r.episode_id is null then 'its run never requested' else 'was requested for evaluation' end
from batch_dispositions d left join requests r using (run_id, episode_id)
where r.episode_id is null or r.purpose = 'eval' order by 1
"""
_BOOKS = """
with asked as (select run_id, count(distinct episode_id) as n from raw_requests group by 1),
told as (select run_id, count(*) as n, count(distinct episode_id) as once from dispositions group by 1)
select 'run ' || coalesce(a.run_id, t.run_id) || ': ' || coalesce(a.n, 0) || ' episodes requested, ' ||
  coalesce(t.n, 0) || ' dispositions of ' || coalesce(t.once, 0) || ' episodes'
from asked a full join told t using (run_id) where a.n is distinct from t.n or t.n is distinct from t.once order by 1
"""
_SCORES = """
select 'score ' || s.score_id || ' of episode ' || s.episode_id || ': ' || case
  when s.status <> 'ok' and s.reward is not null then 'a reward without status ok'
  when s.status = 'ok' and s.reward is null then 'status ok without a reward'
  when s.reward not between 0 and 1 then 'reward ' || s.reward || ' is outside of 0 to 1'
  when s.status = 'ok' and s.evidence is null then 'no evidence'
  else 'it judges another submission than the episode handed over' end
from scores s left join raw_episodes e on e.episode_id = s.episode_id
where (s.status <> 'ok' and s.reward is not null) or (s.status = 'ok' and (s.reward is null or s.evidence is null))
  or s.reward not between 0 and 1 or (e.episode_id is not null and e.submission is distinct from s.submission)
order by 1
"""
_ARTIFACTS = """
select evidence as digest, min('score ' || score_id || ' of episode ' || episode_id || ': its evidence') as whose
from scores where status = 'ok' and evidence is not null group by 1
union all
select submission, min('episode ' || episode_id || ': its submission') from raw_episodes
where submission is not null group by 1
union all
select manifest, min('batch ' || batch_id || ': its manifest')
from batches anti join (select * from dead_letters where redriven_at is null) using (topic, partition, "offset")
group by 1 order by 2
"""


_BEYOND = _BEYOND.format(rows=" union all ".join(
    f"select '{table}' as name, topic, partition, \"offset\" from raw_{table}" for table in TABLES))
_CHECKS = (_TWICE, _NAMELESS, _SEQUENCES, _ROW_WITHOUT_EVENT, _EVENT_WITHOUT_ROW, _MANIFESTS, _DECIDED, _STRANGERS,
           _BOOKS, _SCORES)


def problems(lake: Lake, contiguous: bool = True) -> Iterator[str]:
    """Every broken promise that the tables show. At most a few of each kind are listed, then their number.

    `contiguous`: offsets that are in no table are problems. Marks of transactions look so too; who has the log asks it
    about them instead (`lake/gaps.py`).
    """
    positions = lake.positions()
    if not positions and (wrong := generation.lost(lake.folder)):
        yield f"{wrong}; {wrong.hint}"
        return
    another = list(_of_another_log(lake)) if not positions and table_exists(lake.tables, "events") else []
    left = [name for name in TABLES if name != "events" and table_exists(lake.tables, name)] if not positions else []
    if another:
        yield from another
    elif left:
        yield f"the table `events` is gone, but there are {', '.join(left)}: `headrace lake rebuild` builds all anew"
        return
    with suppress(LakeError):  # It is told below.
        yield from (f"{table}: {wrong}; {REBUILD}" for table, wrong in (lake.unkept() if not another else ()))
    snapshot = snapshot_of(positions)
    told: set[str] = set()
    asked = {"topics": [topic for topic, _ in positions], "partitions": [number for _, number in positions],
             "offsets": list(positions.values())}
    if contiguous:
        with suppress(LakeError):  # It is told below.
            yield from _listed([f"{gap}{_UNTOLD}" for gap in gaps(lake, snapshot)])
    queries = [(_BEYOND, asked)] if positions else []
    for query, parameters in [*queries, *((query, None) for query in _CHECKS)]:
        try:
            yield from _told(lake.sql(query, snapshot, parameters))
        except LakeError as wrong:  # Files or tables are gone: what can be asked without them still is.
            if (text := f"{wrong}; {wrong.hint}") not in told:
                yield text
            told.add(text)
    yield from _undecodable(lake) if told else _listed(_unkept_artifacts(lake, snapshot))


def behind(lake: Lake) -> list[tuple[str, int]]:
    """Tables that lack rows of admitted events, and of how many."""
    found = lake.sql(f"select split_part(line, ':', 1) as name, count(*)::bigint as n from ({_EVENT_WITHOUT_ROW}) "
                     "t(line) group by 1 order by 1", snapshot_of(lake.positions()))
    return [(row["name"], row["n"]) for row in found.to_pylist()]


def _told(result: pa.Table) -> Iterator[str]:
    yield from _listed(result.column(0).to_pylist())


def _listed(lines: Iterable[str]) -> Iterator[str]:
    found = list(lines)
    yield from found[:_LISTED]
    if len(found) > _LISTED:
        yield f"... and {len(found) - _LISTED} more like: {found[0]}"


def _of_another_log(lake: Lake) -> Iterator[str]:
    """`events` that says it is a copy of one log and holds the positions of others."""
    handle = open_table(lake.tables, "events")
    found = read_transactions(lake.tables.at("events").at(LOG), handle.version()).entries
    if owners := sorted({name.partition("/")[0] for name in found if name.count("/") > 1} - {lake.identity}):
        yield (f"the table `events` says it is a copy of log {lake.identity or '(none)'}, but holds positions of "
               f"{', '.join(owners)}: set its property {IDENTITY_KEY} back")


def _undecodable(lake: Lake) -> Iterator[str]:
    """Data files that are not what was written, found by reading them whole."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for name in TABLES:
        with suppress(LakeError):  # It was told already.
            for live in live_files(open_table(lake.tables, name)) if table_exists(lake.tables, name) else ():
                try:
                    with lake.tables.at(name).reader(live.path) as file:
                        for batch in pq.ParquetFile(file).iter_batches(1024):
                            batch.validate(full=True)
                except (OSError, ValueError, pa.ArrowException) as wrong:
                    yield (f"{name}/{live.path}: the file cannot be read ({first_line(wrong)}): restore it, or "
                           "`headrace lake rebuild` builds the table anew from the log")


def _unkept_artifacts(lake: Lake, snapshot: dict[str, int]) -> Iterator[str]:
    """Evidence is an artifact: a score that names one which is gone proves nothing. And nobody scores a submission
    again, or builds a batch, that is not what it was."""
    for batch in lake.batches(_ARTIFACTS, snapshot):
        for row in batch.to_pylist():
            try:
                lake.artifacts.get(row["digest"])
            except ArtifactStorageError:
                raise
            except ArtifactError as wrong:
                yield f"{row['whose']} cannot be had: {wrong}"
