"""Scoring again: stored submissions through today's verifiers, in fresh sandboxes, without a model.

Every verdict is a new row of the ledger that names the one it supersedes; nothing is overwritten. What infrastructure
breaks is tried again a few times, as live scoring does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from eventlog.log import EventLog
from schemas.codec import make_event
from schemas.enums import ScoreStatus
from schemas.envelope import Position
from schemas.errors import NotFoundError, UserError
from schemas.events import ScoreRecorded
from schemas.ids import new_id
from schemas.topics import SCORES
from verifiers.scoring import Request, Scorer

if TYPE_CHECKING:
    import pyarrow as pa

    from lake.lake import Lake

ATTEMPTS = 3
_WAITING = 4
"""Submissions waiting for each worker: a replay of millions of episodes holds no more than these."""
_COLUMNS = """
s.episode_id, s.score_id, s.submission, s.verifier, s.verifier_digest, s.status, s.reward, s.components, s.seed,
coalesce(r.run_id, e.run_id, '') as run_id
from current_scores s left join requests r using (episode_id) left join episodes e using (episode_id)
"""
_CURRENT = f"select {_COLUMNS} where s.episode_id in (select unnest($ids::varchar[]))"
_SCORED = "select episode_id from current_scores order by episode_id"
_CHUNK = 1000


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a score says: two that say the same are equal, whenever and by whichever digest they were given."""

    status: str
    reward: float | None
    components: dict[str, float | None]


class Before(msgspec.Struct, frozen=True, kw_only=True):
    """The score of an episode that stood before."""

    episode_id: str
    run_id: str
    score_id: str
    submission: str
    verifier: str
    verifier_digest: str
    seed: int
    verdict: Verdict


class Rescored(msgspec.Struct, frozen=True, kw_only=True):
    before: Before
    score: ScoreRecorded

    @property
    def after(self) -> Verdict:
        return Verdict(status=self.score.status, reward=self.score.reward, components=dict(self.score.components))

    @property
    def outcome(self) -> Literal["equal", "changed", "failed"]:
        """`failed`: infrastructure gave no verdict, so nothing was learned about the old one."""
        if self.score.status == ScoreStatus.INFRA_FAILURE:
            return "failed"
        return "equal" if self.after == self.before.verdict else "changed"

    def difference(self) -> dict[str, Any]:
        """In one row: which components moved, and whether the verifier is another one."""
        before, after = self.before.verdict, self.after
        moved = [f"{name}: {before.components.get(name)} -> {after.components.get(name)}"
                 for name in sorted(before.components.keys() | after.components.keys())
                 if before.components.get(name) != after.components.get(name)]
        return {
            "episode_id": self.before.episode_id, "outcome": self.outcome, "verifier": self.score.verifier,
            "same_verifier": self.score.verifier_digest == self.before.verifier_digest, "status_before": before.status,
            "status": after.status, "reward_before": before.reward, "reward": after.reward,
            "components": "; ".join(moved), "score_id": self.score.score_id}


class Report(msgspec.Struct, kw_only=True):
    """What a replay found. Rows are kept for episodes whose score is not what it was."""

    replay_id: str
    equal: int = 0
    changed: int = 0
    failed: int = 0
    different: list[Rescored] = []

    @property
    def scored(self) -> int:
        return self.equal + self.changed + self.failed

    def add(self, rescored: Rescored) -> None:
        outcome = rescored.outcome
        setattr(self, outcome, getattr(self, outcome) + 1)
        if outcome != "equal":
            self.different.append(rescored)

    def differences(self) -> pa.Table:
        import pyarrow as pa

        return pa.Table.from_pylist([rescored.difference() for rescored in self.different], schema=pa.schema([
            ("episode_id", pa.string()), ("outcome", pa.string()), ("verifier", pa.string()),
            ("same_verifier", pa.bool_()), ("status_before", pa.string()), ("status", pa.string()),
            ("reward_before", pa.float64()), ("reward", pa.float64()), ("components", pa.string()),
            ("score_id", pa.string())]))


def scored_episodes(lake: Lake) -> list[str]:
    """Every episode that has a score of its task's reward verifier."""
    return list(lake.sql(_SCORED)["episode_id"].to_pylist())


def rescore(lake: Lake, log: EventLog, score: Scorer, *, episode_ids: Sequence[str], workers: int = 2,
            deadline_s: float = 60.0, on_score: Callable[[], object] | None = None) -> Report:
    """Score these episodes again and add the verdicts to the ledger. All are in the log when this returns.

    Raises NotFoundError for an episode without a score, before anything is run.
    """
    if workers < 1:
        raise UserError("a replay needs at least one worker", value=workers)
    report = Report(replay_id=new_id())
    before = _current_scores(lake, episode_ids)
    source = f"replay/{report.replay_id}"

    def judge(old: Before) -> Rescored:
        return Rescored(before=old, score=_judge(old, report.replay_id, score, deadline_s))

    durable: deque[Future[list[Position]]] = deque()
    with ThreadPoolExecutor(workers, thread_name_prefix="replay") as pool:
        for rescored in _few_at_a_time(pool, judge, before, workers * _WAITING):
            new = rescored.score
            durable.append(log.append(SCORES, [make_event(
                new, subject=new.episode_id, source=source, time_us=new.finished_at, event_id=new.score_id)]))
            while durable and (durable[0].done() or len(durable) > _CHUNK):
                durable.popleft().result()
            report.add(rescored)
            if on_score:
                on_score()
    for appended in durable:
        appended.result()
    return report


def _current_scores(lake: Lake, episode_ids: Sequence[str]) -> list[Before]:
    snapshot, found = lake.snapshot(), {}
    for start in range(0, len(episode_ids), _CHUNK):
        chunk = list(episode_ids[start:start + _CHUNK])
        for row in lake.sql(_CURRENT, snapshot, {"ids": chunk}).to_pylist():
            found[row["episode_id"]] = _before(row)
    missing = [episode_id for episode_id in episode_ids if episode_id not in found]
    if missing:
        raise NotFoundError("episode has no score to replay", value=missing[0],
                            hint="`headrace scores ls` lists what was scored")
    return [found[episode_id] for episode_id in dict.fromkeys(episode_ids)]


def _before(row: Mapping[str, Any]) -> Before:
    verdict = Verdict(status=row["status"], reward=row["reward"], components=dict(row["components"] or []))
    return Before(verdict=verdict, **{name: row[name] for name in (
        "episode_id", "run_id", "score_id", "submission", "verifier", "verifier_digest", "seed")})


def _judge(before: Before, replay_id: str, score: Scorer, deadline_s: float) -> ScoreRecorded:
    request = Request(submission=before.submission, episode_id=before.episode_id, run_id=before.run_id,
                      seed=before.seed, deadline_s=deadline_s, cause=replay_id, supersedes=before.score_id)
    for _ in range(ATTEMPTS):
        given = score(request)
        if given.status != ScoreStatus.INFRA_FAILURE:
            break
    return given


def _few_at_a_time(pool: ThreadPoolExecutor, work: Callable[[Before], Rescored], items: Iterable[Before],
                   most: int) -> Iterator[Rescored]:
    """Results in the order of items, with a bounded number under way."""
    under_way: deque[Future[Rescored]] = deque()
    try:
        for item in items:
            if len(under_way) >= most:
                yield under_way.popleft().result()
            under_way.append(pool.submit(work, item))
        while under_way:
            yield under_way.popleft().result()
    finally:
        for future in under_way:
            future.cancel()
