"""What must hold before a batch is sealed, and of the batch that was sealed. Plain functions; Dagster wraps them in
`pipelines/asset_checks.py`.

Checks of the lake look at what came after `since`, the snapshot of the run's last batch: what lies before it was
checked then, so the cost of a check does not grow with the lake. `Lake.verify` audits everything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

import msgspec

from lake.gaps import Gap, gaps, lost
from lake.snapshot import parse_snapshot
from schemas.enums import Disposition
from schemas.errors import HeadraceError, NotFoundError, TrainingError
from training.accounts import close_books
from training.batch_file import decode_batch
from training.manifest import Manifest

if TYPE_CHECKING:
    from eventlog.inspection import Inspector
    from lake.lake import Lake

Snapshot = Mapping[str, int]
INFRA_FAILURE_LIMIT = 0.2
"""Largest share of an interval's episodes that infrastructure may have ended: beyond it, what is left is no sample."""
_SHOWN = 5


class RedCheckError(TrainingError):
    """A blocking check failed: nothing is sealed."""

    code = "check"

    def __init__(self, run_id: str, red: Sequence[tuple[str, str]]) -> None:
        told = "; ".join(f"`{name}`: {found}" for name, found in red)
        super().__init__(f"{'check' if len(red) == 1 else 'checks'} failed, {told}", where=f"run {run_id}",
                         hint="`headrace sql` shows the rows; nothing was sealed, no learner saw them")


class CheckOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """`found` says in words what was found; numbers stand in `metadata`."""

    name: str
    found: str
    passed: bool
    metadata: dict[str, Any] = {}


_WINDOW = """
window_events as (
  select e.* from events e left join (
    select unnest($topics) as topic, unnest($partitions) as partition, unnest($floors) as floor)
  using (topic, partition) where e."offset" >= coalesce(floor, 0))
"""
_TWICE = f"""
with {_WINDOW},
placed as (
  select topic || '-' || partition || ' offset ' || "offset" as what, count(*) as n
  from window_events group by topic, partition, "offset" having n > 1),
named as (
  select 'event ' || id as what, count(*) as n from events
  where topic = 'trajectories' and admitted and id in (
    select id from window_events where topic = 'trajectories' and admitted)
  group by id having n > 1)
select what, n from placed union all select what, n from named order by what
"""
_COUNTED = f"with {_WINDOW} select count(*) as n from window_events"
_REWARDS = """
select score_id, episode_id, status, reward from scores
where (reward is not null and not (reward between 0 and 1)) or isnan(reward) or (status = 'ok') <> (reward is not null)
order by score_id
"""
_SCORED = "select count(*) as n, min(reward) as lowest, max(reward) as highest from scores"
_FAILURES = """
select coalesce(e.failure_kind, 'unknown') as kind, e.termination = 'infra_failure' as failed, count(*) as n
from episodes e left join (
  select unnest($topics) as topic, unnest($partitions) as partition, unnest($floors) as floor) using (topic, partition)
where ($run is null or e.run_id = $run) and e."offset" >= coalesce(floor, 0) group by all order by all
"""
_RUNS = "select distinct run_id from requests order by run_id"
_FOREIGN = """
select d.episode_id, case when r.episode_id is null then 'never requested' when r.purpose = 'eval' then
  'requested for evaluation' else 'decided by an earlier batch' end as why
from (select unnest($ids::varchar[]) as episode_id) d
left join requests r on r.episode_id = d.episode_id and r.run_id = $run
left join batch_dispositions b on b.episode_id = d.episode_id and b.run_id = $run and b.batch_id <> $batch
where r.episode_id is null or r.purpose = 'eval' or b.episode_id is not null order by 1
"""


def check_offsets_contiguous(lake: Lake, *, since: Snapshot | None = None, snapshot: Snapshot | None = None,
                             log: Callable[[], Inspector] | None = None) -> CheckOutcome:
    """Every offset between `since` and the snapshot is in the lake, as an event or as a dead letter, or is a mark of a
    transaction. Only the log can tell those: it is opened and asked where there is a gap, and without it a gap counts
    as a loss."""
    snapshot = lake.snapshot() if snapshot is None else snapshot
    ends, starts = parse_snapshot(snapshot), parse_snapshot(since or {})
    wanted = sum(end - min(starts.get(part, 0), end) for part, end in ends.items())
    missing = gaps(lake, snapshot, since)
    absent = sum(gap.size for gap in missing)
    told, why = _by_the_log(missing, log)
    found = f"all {wanted} offsets are there" if not missing else f"all {wanted} offsets are there but {absent}, " \
        "which are marks of transactions or aborted records"
    if told:
        found = "offsets are missing: " + _list(
            f"{gap.size} of {gap.part[0]}-{gap.part[1]} between {gap.first} and {gap.last} ({how})"
            for gap, how in told) + why
    return CheckOutcome(name="offsets_contiguous", passed=not told, found=found, metadata={
        "offsets": wanted, "missing": sum(gap.size for gap, _ in told), "absent": absent, "partitions": len(ends)})


def _by_the_log(missing: list[Gap], log: Callable[[], Inspector] | None) -> tuple[list[tuple[Gap, str]], str]:
    """What of the gaps is lost, and why that could not be told."""
    untold = [(gap, "lost, or marks of transactions") for gap in missing]
    if not missing or log is None:
        return untold, ""
    try:
        with closing(log()) as inspector:
            return list(lost(missing, inspector)), ""
    except HeadraceError as wrong:
        return untold, f". The log could not be asked: {wrong}"


def check_event_ids_unique(lake: Lake, *, since: Snapshot | None = None,
                           snapshot: Snapshot | None = None) -> CheckOutcome:
    """No record is in the lake twice, and no admitted event of a trajectory has another's id."""
    window = _window(since)
    twice = lake.sql(_TWICE, snapshot, window).to_pylist()
    events = lake.sql(_COUNTED, snapshot, window)["n"][0].as_py()
    found = f"{events} events, each once" if not twice else "more than once: " + _list(
        f"{row['what']} ({row['n']} times)" for row in twice)
    return CheckOutcome(name="event_ids_unique", passed=not twice, found=found,
                        metadata={"events": events, "repeated": len(twice)})


def check_reward_range(lake: Lake, *, snapshot: Snapshot | None = None) -> CheckOutcome:
    """A reward is a number from 0 to 1, there exactly where the verdict is `ok`."""
    wrong = lake.sql(_REWARDS, snapshot).to_pylist()
    totals = lake.sql(_SCORED, snapshot).to_pylist()[0]
    found = f"{totals['n']} scores, rewards in [0, 1]" if not wrong else "wrong scores: " + _list(
        f"{row['score_id']} of episode {row['episode_id']} (status {row['status']}, reward {row['reward']})"
        for row in wrong)
    return CheckOutcome(name="reward_range", passed=not wrong, found=found, metadata={
        "scores": totals["n"], "wrong": len(wrong), "lowest": totals["lowest"], "highest": totals["highest"]})


def check_infra_failure_rate(lake: Lake, run_id: str | None = None, *, since: Snapshot | None = None,
                             snapshot: Snapshot | None = None, limit: float = INFRA_FAILURE_LIMIT) -> CheckOutcome:
    """Of the episodes that finished after `since`, at most `limit` were ended by infrastructure."""
    rows = lake.sql(_FAILURES, snapshot, {**_window(since), "run": run_id}).to_pylist()
    finished, kinds = sum(row["n"] for row in rows), {row["kind"]: row["n"] for row in rows if row["failed"]}
    failed = sum(kinds.values())
    rate = failed / finished if finished else 0.0
    reasons = f" ({_list(f'{kind}: {n}' for kind, n in kinds.items())})" if kinds else ""
    return CheckOutcome(
        name="infra_failure_rate", passed=rate <= limit,
        found=f"infrastructure ended {failed} of {finished} episodes, {rate:.0%} where {limit:.0%} may be{reasons}",
        metadata={"finished": finished, "infra_failed": failed, "rate": rate, "limit": limit})


def check_accounts_closed(lake: Lake, run_id: str | None = None) -> CheckOutcome:
    """Every requested episode of the run (without one: of all runs) has exactly one disposition."""
    runs = [run_id] if run_id else lake.sql(_RUNS)["run_id"].to_pylist()
    counts: Counter[str] = Counter()
    try:
        for run in runs:
            counts.update(close_books(run, lake))
    except NotFoundError:
        return CheckOutcome(name="accounts_closed", passed=True, found="no episode was requested yet")
    except HeadraceError as wrong:
        return CheckOutcome(name="accounts_closed", passed=False, found=str(wrong), metadata=dict(counts))
    return CheckOutcome(name="accounts_closed", passed=True, metadata=dict(counts),
                        found=f"{counts.total()} episodes requested, each with one disposition")


def check_staleness(manifest: Manifest, batch: bytes) -> CheckOutcome:
    """No token that will be trained on was sampled by a version too far behind, or ahead, of the one being trained.

    Looks at the tokens in the file, not at what the selection thought of their episodes.
    """
    oldest, newest, tokens = manifest.version, manifest.version, 0
    for sequence in decode_batch(batch):
        versions = sequence.versions[sequence.trained]
        versions = versions[versions >= 0]
        if len(versions):
            tokens += len(versions)
            oldest, newest = min(oldest, int(versions.min())), max(newest, int(versions.max()))
    bound = manifest.spec.max_staleness
    passed = manifest.version - oldest <= bound and newest <= manifest.version
    return CheckOutcome(
        name="staleness_bound", passed=passed,
        found=f"version {manifest.version} is trained on {tokens} tokens of versions {oldest} to {newest}; "
              f"{bound} behind may be",
        metadata={"staleness": manifest.version - oldest, "bound": bound, "oldest": oldest, "newest": newest})


def check_batch_accounts(lake: Lake, manifest: Manifest) -> CheckOutcome:
    """Each episode of the batch is decided once, was requested for training, and belongs to no earlier batch."""
    decided = Counter(decision.episode_id for decision in manifest.dispositions)
    inside = {decision.episode_id for decision in manifest.dispositions
              if decision.disposition in (Disposition.TRAINED, Disposition.MASKED)}
    faults = [f"{episode_id} is decided {n} times" for episode_id, n in decided.items() if n > 1]
    faults += [f"{episode_id} has rows but is not in the batch" for episode_id in
               sorted({row.episode_id for row in manifest.rows} - inside)]
    foreign = lake.sql(_FOREIGN, manifest.snapshot, {
        "ids": sorted(decided), "run": manifest.run_id, "batch": manifest.batch_id}).to_pylist()
    faults += [f"{row['episode_id']} was {row['why']}" for row in foreign]
    counts = Counter(decision.disposition for decision in manifest.dispositions)
    return CheckOutcome(name="batch_accounts", passed=not faults, metadata=dict(counts), found=_list(faults) if faults
                        else f"{len(decided)} episodes decided, each once")


def _window(since: Snapshot | None) -> dict[str, Any]:
    floors = parse_snapshot(since or {})
    return {"topics": [topic for topic, _ in floors], "partitions": [number for _, number in floors],
            "floors": list(floors.values())}


def _list(items: Any) -> str:
    listed = list(items)
    return "; ".join(listed[:_SHOWN]) + (f"; and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else "")
