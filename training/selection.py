"""Which episodes the next batch takes: pure rules over what the lake says at one snapshot.

GRPO takes groups. A group closes when enough members have a reward, when every member has ended, or when event time
has left it behind; it closes once, and members that come later are surplus. Groups are taken in the order of their
requests, without waiting for an older one that is still open. A supervised batch takes episodes, whatever their group.
Every decision names its rule; members that ended without a reward are accounted for by their own events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from schemas.enums import Disposition, ScoreStatus
from training.spec import BatchSpec

if TYPE_CHECKING:
    from lake.lake import Lake

_MEMBERS = """
select r.episode_id, r.group_id, r.policy, r.sample_index, epoch_us(r.requested_at) as requested_us,
  e.episode_id is not null as finished, e.submission is not null as submitted, e.version_min,
  s.status, s.reward, d.episode_id is not null as decided
from requests r
left join episodes e on e.episode_id = r.episode_id
left join current_scores s on s.episode_id = r.episode_id
left join batch_dispositions d on d.run_id = r.run_id and d.episode_id = r.episode_id
where r.run_id = $run and r.purpose = 'train'
order by requested_us, r.group_id, r.sample_index, r.episode_id
"""
_NEWEST = """
select max(us) as newest_us from (
  select epoch_us(max(requested_at)) as us from requests where run_id = $run
  union all select epoch_us(max(finished_at)) from episodes where run_id = $run)
"""


class Member(NamedTuple):
    """One requested training episode, as the snapshot has it."""

    episode_id: str
    group_id: str
    policy: str
    sample_index: int
    requested_us: int
    finished: bool
    submitted: bool
    version_min: int | None
    status: str | None
    reward: float | None
    decided: bool

    @property
    def scored(self) -> bool:
        """Has a reward of the task's verifier."""
        return self.finished and self.status == ScoreStatus.OK and self.reward is not None

    @property
    def ended(self) -> bool:
        """Nothing more will come: scored, failed to be scored, or ended with nothing to score."""
        return self.finished and (self.status is not None or not self.submitted)


class Decision(NamedTuple):
    episode_id: str
    disposition: Disposition
    reason: str


class Selection(NamedTuple):
    """`groups` holds the scored, not stale members that the batch takes; a supervised batch is one group."""

    groups: list[list[Member]]
    decisions: list[Decision]
    abandoned: list[str]
    """Groups that closed without a member to decide about; they count once, so the next batch must know them."""


def read_members(run_id: str, lake: Lake, snapshot: Mapping[str, int]) -> list[Member]:
    """All training episodes requested for a run, in the order of their requests."""
    rows = lake.sql(_MEMBERS, snapshot, {"run": run_id}).to_pylist()
    return [Member(**row) for row in rows]


def newest_event_us(run_id: str, lake: Lake, snapshot: Mapping[str, int]) -> int:
    return lake.sql(_NEWEST, snapshot, {"run": run_id}).to_pylist()[0]["newest_us"] or 0


def select(members: Sequence[Member], spec: BatchSpec, version: int, newest_us: int,
           abandoned: Iterable[str] = ()) -> Selection | None:
    """What the next batch takes and decides; None while there is not enough for one."""
    if spec.algorithm == "sft":
        return _select_supervised(members, spec)
    return _select_groups(members, spec, version, newest_us, frozenset(abandoned))


def _select_groups(members: Sequence[Member], spec: BatchSpec, version: int, newest_us: int,
                   abandoned: frozenset[str]) -> Selection | None:
    selection = Selection([], [], [])
    counted = 0
    for group_id, group in _groups(members):
        if group_id in abandoned or any(member.decided for member in group):
            selection.decisions.extend(_surplus(group, "group_closed"))
            continue
        closed_by = _closed_by(group, spec, newest_us)
        if counted == spec.groups or not closed_by:
            continue
        taken, decisions = _close(group, spec, version, closed_by)
        selection.decisions.extend(decisions)
        if taken:
            selection.groups.append(taken)
        elif not decisions:
            selection.abandoned.append(group_id)
        # A group that is merely too old makes room for another one.
        counted += bool(taken) or not any(decision.disposition == Disposition.STALE for decision in decisions)
    return selection if counted == spec.groups else None


def _groups(members: Sequence[Member]) -> Iterable[tuple[str, list[Member]]]:
    """Groups in the order of their first request."""
    first: dict[str, int] = {}
    for member in members:
        first.setdefault(member.group_id, member.requested_us)
    ordered = sorted(members, key=lambda member: (
        first[member.group_id], member.group_id, member.sample_index, member.episode_id))
    for group_id, group in groupby(ordered, key=lambda member: member.group_id):
        yield group_id, list(group)


def _closed_by(group: Sequence[Member], spec: BatchSpec, newest_us: int) -> str:
    """The rule that closes a group; empty while it is open."""
    if sum(member.scored for member in group) >= spec.group_size:
        return "group_full"
    if len(group) >= spec.group_size and all(member.ended for member in group):
        return "group_ended"
    if newest_us - group[0].requested_us > spec.group_timeout_s * 1_000_000:
        return "group_timed_out"
    return ""


def _close(group: Sequence[Member], spec: BatchSpec, version: int,
           closed_by: str) -> tuple[list[Member], list[Decision]]:
    """Members to train on, and decisions about the others."""
    fresh = [member for member in group if member.scored and not _stale(member, spec, version)]
    taken, rest = fresh[:spec.group_size], fresh[spec.group_size:]
    decisions = [Decision(member.episode_id, Disposition.STALE, "max_staleness")
                 for member in group if member.scored and _stale(member, spec, version)]
    decisions += [Decision(member.episode_id, Disposition.SURPLUS, closed_by)
                  for member in group if member in rest or not member.ended]
    return taken, decisions


def _stale(member: Member, spec: BatchSpec, version: int) -> bool:
    return member.version_min is not None and version - member.version_min > spec.max_staleness


def _surplus(group: Iterable[Member], reason: str) -> list[Decision]:
    """Members of a closed group about whom nothing was said yet; the failed ones speak for themselves."""
    return [Decision(member.episode_id, Disposition.SURPLUS, reason)
            for member in group if not member.decided and (member.scored or not member.ended)]


def _select_supervised(members: Sequence[Member], spec: BatchSpec) -> Selection | None:
    offered = [member for member in members if not member.decided and member.policy.startswith(spec.policy)]
    scored = [member for member in offered if member.scored]
    waiting = any(not member.ended for member in offered)
    if len(scored) < spec.episodes and (waiting or len(offered) < spec.episodes):
        return None
    return Selection([scored[:spec.episodes]], [], []) if scored else None
