"""SQL names: every table and view that users query, as DuckDB views over one snapshot of the lake's files.

`raw_NAME` is what lies in the files of table NAME below the snapshot. The public names stand on them. Facts that may
have been written twice are resolved here: the first with an id wins, in the order of the log. A view's first columns
are those of the contract; a further column never bears a name that another contract table has, so that joins of the
contract's columns stay unambiguous.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_LOG_ORDER = 'topic, partition, "offset"'


class View(NamedTuple):
    needs: tuple[str, ...]
    sql: str


def _first(source: str, key: str, order: str = _LOG_ORDER) -> str:
    return f"select * from {source} qualify row_number() over (partition by {key} order by {order}) = 1"


def _fact(table: str, key: str, columns: str = "*") -> View:
    """What may have been written twice: the first with a key wins."""
    return View((f"raw_{table}",), _first(f"raw_{table}", key).replace("*", columns, 1))


_TASK_VERSIONS = _first("raw_tasks", "task_id, digest")
_TASKS = "select * rename (verifier as reward_verifier) from (" + _first(
    "raw_tasks", "task_id", 'topic, partition, "offset" desc') + ")"

_VERDICTS = f"""
select s.* from scores s
left join requests r on r.episode_id = s.episode_id
left join raw_episodes e on e.episode_id = s.episode_id
left join ({_TASK_VERSIONS}) t
  on t.task_id = coalesce(r.task_id, e.task_id) and t.digest = coalesce(r.task_digest, e.task_digest)
where s.verifier = coalesce(nullif(t.verifier, ''), r.kind, e.kind)
"""

_CURRENT_SCORES = """
select * exclude (newest) from (
  select *, first_value(submission) over (partition by episode_id order by "offset" desc, partition) as newest
  from verdicts)
qualify row_number() over (partition by episode_id
  order by submission is distinct from newest, status = 'infra_failure', "offset" desc, partition) = 1
"""
"""The newest verdict on the newest submission; `infra_failure` is none, and stands only where nothing else does."""

_BATCH_DISPOSITIONS = f"""
select * from raw_batch_dispositions semi join batches using (topic, partition, "offset")
qualify row_number() over (partition by run_id, episode_id order by {_LOG_ORDER}, disposition) = 1
"""

_DISPOSITIONS = """
with begun as (
  select subject as episode_id, bool_or(type = 'episode.finished') as closed from raw_events
  where topic = 'trajectories' and admitted group by 1),
facts as (
  select r.run_id, r.episode_id, r.purpose, b.episode_id is not null as begun, b.closed,
    c.episode_id is not null as called_off, e.episode_id is not null as finished, e.termination, e.failure_kind,
    e.submission, s.status, d.disposition as decided, d.reason as decided_by, d.batch_id
  from requests r
  left join batch_dispositions d on d.run_id = r.run_id and d.episode_id = r.episode_id
  left join raw_episodes e on e.episode_id = r.episode_id
  left join current_scores s on s.episode_id = r.episode_id
  left join begun b on b.episode_id = r.episode_id
  left join (select distinct episode_id from raw_cancellations) c on c.episode_id = r.episode_id),
ruled as (
  select run_id, episode_id, batch_id, case
    when decided is not null then {'disposition': decided, 'reason': decided_by}
    when not finished and closed then {'disposition': 'infra_failed', 'reason': 'unreadable_finish'}
    when not finished then {'disposition': 'pending', 'reason': case
      when called_off then 'cancel_requested' when begun then 'unfinished' else 'not_started' end}
    when termination = 'cancelled' then {'disposition': 'cancelled', 'reason': 'finished_cancelled'}
    when termination = 'infra_failure' then
      {'disposition': 'infra_failed', 'reason': coalesce(failure_kind, termination)}
    when status is null and submission is null then {'disposition': 'unscored', 'reason': 'no_submission'}
    when status is null then {'disposition': 'pending', 'reason': 'not_scored'}
    when status <> 'ok' then {'disposition': 'unscored', 'reason': status}
    when purpose = 'eval' then {'disposition': 'evaluated', 'reason': 'scored'}
    else {'disposition': 'pending', 'reason': 'waiting_for_batch'} end as ruling
  from facts)
select run_id, episode_id, ruling.disposition as disposition, ruling.reason as reason, batch_id from ruled
"""

_DEAD_LETTERS = """
select l.*, r.redriven_at from raw_dead_letters l
left join (select topic, partition, "offset", min("at") as redriven_at from raw_redrives group by 1, 2, 3) r
  using (topic, partition, "offset")
"""

def _seconds(start: str, end: str) -> str:
    return f"(epoch_us({end}) - epoch_us({start})) / 1e6"


_STAGE_LATENCY = f"""
with first_verdicts as (select episode_id, min(scored_at) as scored_at from verdicts group by 1),
steps_in as (
  select subject as episode_id, type, time, topic, partition, "offset",
    lead("offset") over (partition by subject order by topic, partition, "offset") as following
  from raw_events where topic = 'trajectories' and admitted)
select e.episode_id, 'queue' as stage, coalesce(r.requested_at, e.requested_at) as started_at,
  {_seconds('coalesce(r.requested_at, e.requested_at)', 'e.started_at')} as duration_s
from raw_episodes e left join requests r using (episode_id) where coalesce(r.requested_at, e.requested_at) is not null
union all
select c.episode_id, 'sandbox', c.time, greatest(0, {_seconds('c.time', 't.started_at')})
from steps_in c join raw_turns t
  on t.topic = c.topic and t.partition = c.partition and t."offset" = c.following and t.episode_id = c.episode_id
where c.type in ('episode.started', 'episode.resumed')
union all
select episode_id, 'model', started_at, {_seconds('started_at', 'finished_at')} from raw_turns
union all
select episode_id, 'tool', started_at, duration_s from raw_tool_calls
union all
select e.episode_id, 'verify', e.finished_at, {_seconds('e.finished_at', 'v.scored_at')}
from raw_episodes e join first_verdicts v using (episode_id)
union all
select d.episode_id, 'batch', v.scored_at, {_seconds('v.scored_at', 'b.sealed_at')}
from batch_dispositions d join batches b using (batch_id)
join first_verdicts v using (episode_id)
union all
select d.episode_id, 'wait', b.sealed_at, greatest(0, {_seconds('b.sealed_at', 's.at')} - s.duration_s)
from batch_dispositions d join batches b using (batch_id) join steps s using (batch_id)
where d.disposition in ('trained', 'masked')
"""
"""`sandbox`: from a claim to the start of the turn that comes next: the claim read back, the sandbox acquired, the
prompt encoded. `wait`: a sealed batch waits for the learner. No event tells how long a lease of a sandbox or the sink's
flush took, so there are no rows of `lease` and `sink`."""

_GROUPS = """
select r.run_id, r.group_id, min(r.task_id) as task_id, count(*) as requested, count(e.episode_id) as finished,
  count(*) filter (s.status = 'ok') as scored, avg(s.reward) filter (s.status = 'ok') as reward_mean,
  stddev_pop(s.reward) filter (s.status = 'ok') as reward_std
from requests r
left join raw_episodes e on e.episode_id = r.episode_id
left join current_scores s on s.episode_id = r.episode_id
group by r.run_id, r.group_id
"""

_PASS_AT_K = """
select run_id, task_id, kind, purpose, policy, version, n as samples, c as passed, k,
  1.0 - coalesce(list_product([1.0 - k / i for i in range(n - c + 1, n + 1)]), 1.0) as pass_at_k
from (
  select r.run_id, r.task_id, r.kind, r.purpose, r.policy, e.version_max as version, count(*) as n,
    count(*) filter (s.reward = 1) as c
  from requests r join raw_episodes e using (episode_id)
  join current_scores s on s.episode_id = r.episode_id and s.status = 'ok'
  group by all) as tasks, unnest(range(1, n + 1)) as samples(k)
"""
"""The chance that one of k samples of a task is right, without bias: 1 - C(n-c, k) / C(n, k), for each k up to n. The
mean over tasks is pass@k, of one run, purpose and version of the weights: other weights are another policy. A sample
without a verdict is none."""

VIEWS: dict[str, View] = {
    "requests": _fact("requests", "episode_id"),
    "episodes": View(("raw_episodes",), "select * exclude (sample_index, requested_at) from raw_episodes"),
    "turns": View(("raw_turns",), "select * from raw_turns"),
    "tool_calls": View(("raw_tool_calls",), "select * exclude (duration_s) from raw_tool_calls"),
    "scores": _fact("scores", "score_id", "* exclude (started_at, run_id, task_id)"),
    "verdicts": View(("scores", "requests", "raw_episodes", "raw_tasks"), _VERDICTS),
    "current_scores": View(("verdicts",), _CURRENT_SCORES),
    "batches": _fact("batches", "run_id, step"),
    "batch_rows": View(("raw_batch_rows", "batches"),
                       'select * from raw_batch_rows semi join batches using (topic, partition, "offset")'),
    "batch_dispositions": View(("raw_batch_dispositions", "batches"), _BATCH_DISPOSITIONS),
    "steps": _fact("steps", "run_id, step"),
    "weights": _fact("weights", "run_id, version", "* exclude (step)"),
    "dispositions": View(("requests", "batch_dispositions", "raw_episodes", "current_scores", "raw_events",
                          "raw_cancellations"), _DISPOSITIONS),
    "stage_latency": View(("raw_episodes", "requests", "raw_turns", "raw_tool_calls", "raw_events", "verdicts",
                           "batch_dispositions", "batches", "steps"), _STAGE_LATENCY),
    "groups": View(("requests", "raw_episodes", "current_scores"), _GROUPS),
    "pass_at_k": View(("requests", "raw_episodes", "current_scores"), _PASS_AT_K),
    "tasks": View(("raw_tasks",), _TASKS),
    "cancellations": _fact("cancellations", "episode_id"),
    "events": View(("raw_events",), "select * from raw_events"),
    "dead_letters": View(("raw_dead_letters", "raw_redrives"), _DEAD_LETTERS),
}
"""In an order in which each stands on earlier ones."""
PUBLIC = tuple(name for name in VIEWS if name != "verdicts")
_EVERYTHING = re.compile(r"\b(show|information_schema|duckdb_\w+|sqlite_master|query|query_table)\b", re.IGNORECASE)


def mentioned(query: str) -> list[str]:
    """Views that a query may touch, with all that they stand on, in order. A name must be written to be used."""
    if _EVERYTHING.search(query):
        wanted = set(PUBLIC)
    else:
        words = {word.lower() for word in re.findall(r"\w+", query)}
        wanted = {name for name in VIEWS if name in words} | {word for word in words if word.startswith("raw_")}
    for name in reversed(VIEWS):
        if name in wanted:
            wanted.update(VIEWS[name].needs)
    return [name for name in VIEWS if name in wanted] + sorted(name for name in wanted if name.startswith("raw_"))
