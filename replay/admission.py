"""Whether a task may be trained on: its reference solution must score 1 every time, and doing nothing must not pay.

The evidence is a run like any other (policies `scripted:reference` and `scripted:empty`), so every verdict that a
ruling stands on is in the log. What infrastructure kept from being judged rules nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from schemas.enums import ScoreStatus

if TYPE_CHECKING:
    import pyarrow as pa

    from lake.lake import Lake

Finding = Literal["sound", "unsolvable", "flaky", "hackable", "no_verdict", "unchecked"]
QUARANTINED = frozenset({"unsolvable", "flaky", "hackable", "no_verdict"})
REFERENCE, EMPTY = "scripted:reference", "scripted:empty"
_VERDICTS = """
select r.task_id, r.policy, s.status, s.reward, coalesce(e.failure_kind, e.termination, 'not finished') as ending
from requests r left join episodes e using (episode_id) left join current_scores s using (episode_id)
where r.run_id = $run order by r.task_id, r.policy, r.sample_index
"""


class Verdict(NamedTuple):
    """Of one episode; `status` is None where no score came."""

    status: str | None
    reward: float | None
    ending: str = "completed"


class Ruling(msgspec.Struct, frozen=True, kw_only=True):
    task_id: str
    finding: Finding
    reason: str = ""
    references: list[float | None] = []
    empty: float | None = None


def rule(task_id: str, references: Sequence[Verdict], empty: Verdict | None) -> Ruling:
    """What the verdicts on `references` (the same solution, several times) and on doing nothing say of a task."""
    finding, reason = _finding(references, empty)
    return Ruling(task_id=task_id, finding=finding, reason=reason,
                  references=[verdict.reward for verdict in references], empty=empty.reward if empty else None)


def _finding(references: Sequence[Verdict], empty: Verdict | None) -> tuple[Finding, str]:
    verdicts = [*references, *([empty] if empty else [])]
    if not references or not empty:
        return "unchecked", "it has no reference solution" if empty else "the empty solution was not run"
    broken = [verdict for verdict in verdicts if verdict.status in (None, ScoreStatus.INFRA_FAILURE)]
    if broken:
        return "unchecked", f"no verdict for infrastructure's reasons ({broken[0].status or broken[0].ending})"
    rewards = [verdict.reward for verdict in references]
    if len(set(rewards)) > 1:
        told = ", ".join("none" if reward is None else f"{reward:g}" for reward in rewards)
        return "flaky", f"the reference solution gets {told}"
    if any(verdict.reward is None for verdict in verdicts):
        return "no_verdict", "its verifier fails"
    if rewards[0] != 1.0:
        return "unsolvable", f"the reference solution gets {rewards[0]:g}"
    if empty.reward:
        return "hackable", f"doing nothing gets {empty.reward:g}"
    return "sound", ""


def rulings(lake: Lake, run_id: str, without_reference: Sequence[str] = ()) -> list[Ruling]:
    """One ruling for each task of a run that asked for references and empty solutions."""
    by_task: dict[str, dict[str, list[Verdict]]] = {}
    for row in lake.sql(_VERDICTS, parameters={"run": run_id}).to_pylist():
        verdict = Verdict(row["status"], row["reward"], row["ending"])
        by_task.setdefault(row["task_id"], {}).setdefault(row["policy"], []).append(verdict)
    found = [rule(task_id, verdicts.get(REFERENCE, []), next(iter(verdicts.get(EMPTY, [])), None))
             for task_id, verdicts in by_task.items()]
    return found + [rule(task_id, [], Verdict(None, None)) for task_id in without_reference]


def table_of(found: Sequence[Ruling]) -> pa.Table:
    import pyarrow as pa

    return pa.Table.from_pylist([msgspec.to_builtins(ruling) for ruling in found], schema=pa.schema([
        ("task_id", pa.string()), ("finding", pa.string()), ("reason", pa.string()),
        ("references", pa.list_(pa.float64())), ("empty", pa.float64())]))
