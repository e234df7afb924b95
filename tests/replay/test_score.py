"""Replaying scores: real submissions, fresh sandboxes, a new row for each verdict, and no model."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from replay.score import Report, rescore, scored_episodes
from sandboxes.sandbox import Backend, Sandbox, SandboxSpec
from schemas.codec import decode_payload
from schemas.errors import NotFoundError, SandboxError, UserError
from schemas.events import ScoreRecorded
from schemas.ids import stable_id
from schemas.topics import SCORES
from tests.conftest import REPOSITORY
from tests.replay.conftest import Scored
from verifiers.scoring import here


def ledger(world: Scored, episode_id: str) -> list[dict[str, Any]]:
    """Scores of an episode, oldest first, as SQL has them."""
    world.sink()
    return world.lake.sql("select * from scores where episode_id = $id order by scored_at, score_id",
                          parameters={"id": episode_id}).to_pylist()


def current(world: Scored, episode_id: str) -> dict[str, Any]:
    world.sink()
    (row,) = world.lake.sql("select * from current_scores where episode_id = $id",
                            parameters={"id": episode_id}).to_pylist()
    return row


def replay(world: Scored, ids: Sequence[str], backend: Backend | None = None, **options: Any) -> Report:
    score = here(world.artifacts, backend or world.backend)
    return rescore(world.lake, world.log, score, episode_ids=ids, **options)


class Breaking:
    """A backend whose sandboxes cannot be had for the first `times` acquisitions."""

    def __init__(self, backend: Backend, times: int) -> None:
        self._backend, self.left = backend, times
        self.name, self.isolates, self.capabilities = backend.name, backend.isolates, backend.capabilities

    def acquire(self, spec: SandboxSpec) -> Sandbox:
        if self.left > 0:
            self.left -= 1
            raise SandboxError("no sandbox to be had", kind="sandbox_start")
        return self._backend.acquire(spec)

    def identify(self, image: str) -> str:
        return self._backend.identify(image)

    def reap(self) -> int:
        return self._backend.reap()

    def close(self) -> None: ...


def test_the_home_holds_right_and_wrong_episodes(scored: Scored) -> None:
    rewards = [current(scored, episode_id)["reward"] for episode_id in scored_episodes(scored.lake)]
    assert sorted(rewards) == [0.0, 0.0, 1.0, 1.0, 1.0, 1.0]


def test_scoring_again_says_the_same_and_keeps_both(scored: Scored) -> None:
    ids = scored_episodes(scored.lake)
    first = {episode_id: ledger(scored, episode_id) for episode_id in ids}
    steps: list[int] = []
    report = replay(scored, ids, workers=2, on_score=lambda: steps.append(1))
    assert (report.scored, report.equal, report.changed, report.failed) == (6, 6, 0, 0)
    assert len(steps) == 6
    assert report.differences().num_rows == 0
    for episode_id, before in first.items():
        *kept, old, new = ledger(scored, episode_id)
        assert [*kept, old] == before
        assert (new["cause"], new["supersedes"]) == (report.replay_id, old["score_id"])
        assert {name: new[name] for name in ("submission", "verifier", "verifier_digest", "status", "reward",
                                             "components", "evidence", "seed")} == {
            name: old[name] for name in ("submission", "verifier", "verifier_digest", "status", "reward", "components",
                                         "evidence", "seed")}
        assert current(scored, episode_id)["score_id"] == new["score_id"]


def test_every_replay_is_a_new_row_that_supersedes_the_last(scored: Scored) -> None:
    episode_id = scored_episodes(scored.lake)[0]
    before = ledger(scored, episode_id)
    reports = []
    for _ in range(2):
        reports.append(replay(scored, [episode_id]))
        scored.sink()
    after = ledger(scored, episode_id)
    assert len(after) == len(before) + 2
    assert [row["supersedes"] for row in after[len(before):]] == [after[-3]["score_id"], after[-2]["score_id"]]
    assert len({row["score_id"] for row in after}) == len(after)


def test_a_planted_reward_shows_as_a_change(scored: Scored) -> None:
    """The ledger said 1, the submission earns 0: the replay finds it and the newest row is right again."""
    wrong = next(episode_id for episode_id in scored_episodes(scored.lake)
                 if current(scored, episode_id)["reward"] == 0.0)
    honest = current(scored, wrong)
    planted = ScoreRecorded(
        score_id=stable_id("planted", wrong), episode_id=wrong, submission=honest["submission"],
        verifier=honest["verifier"], verifier_digest=honest["verifier_digest"], status="ok", reward=1.0,
        components={"content": 1.0}, cause="live", started_at=0, finished_at=1)
    scored.write(planted, wrong)
    assert current(scored, wrong)["reward"] == 1.0
    report = replay(scored, [wrong])
    assert (report.equal, report.changed, report.failed) == (0, 1, 0)
    (row,) = report.differences().to_pylist()
    assert (row["episode_id"], row["outcome"], row["reward_before"], row["reward"]) == (wrong, "changed", 1.0, 0.0)
    assert row["same_verifier"]
    assert "content: 1.0 -> " in row["components"]
    assert current(scored, wrong)["reward"] == 0.0
    assert current(scored, wrong)["supersedes"] == planted.score_id


def test_infrastructure_that_recovers_changes_nothing(scored: Scored) -> None:
    ids = scored_episodes(scored.lake)[:1]
    broken = Breaking(scored.backend, 1)
    report = replay(scored, ids, broken)
    assert (report.equal, report.failed, broken.left) == (1, 0, 0)


def test_infrastructure_that_fails_is_no_verdict(scored: Scored) -> None:
    """Null is not 0: a replay without sandboxes says `failed`, never a lower reward."""
    ids = scored_episodes(scored.lake)[:2]
    report = replay(scored, ids, Breaking(scored.backend, 1000))
    assert (report.scored, report.failed, report.changed) == (2, 2, 0)
    rows = report.differences().to_pylist()
    assert [(row["status"], row["reward"]) for row in rows] == [("infra_failure", None)] * 2
    scored.sink()
    assert replay(scored, ids).equal == 2, "the verdict from before still stands"


def test_all_verdicts_are_in_the_log_when_it_returns(scored: Scored) -> None:
    before = sum(scored.log.ends([SCORES]).values())
    report = replay(scored, scored_episodes(scored.lake), workers=3)
    assert sum(scored.log.ends([SCORES]).values()) == before + report.scored
    newest = [decode_payload(record.event) for record in scored.records(SCORES) if record.event is not None]
    mine = [score for score in newest if isinstance(score, ScoreRecorded) and score.cause == report.replay_id]
    assert {score.episode_id for score in mine} == set(scored_episodes(scored.lake))


def test_an_episode_is_scored_once_however_often_it_is_named(scored: Scored) -> None:
    episode_id = scored_episodes(scored.lake)[0]
    assert replay(scored, [episode_id, episode_id]).scored == 1
    assert replay(scored, []).scored == 0


def test_an_episode_without_a_score_is_named_before_anything_runs(scored: Scored) -> None:
    before = scored.log.ends([SCORES])
    with pytest.raises(NotFoundError, match="episode has no score to replay: 'nobody'") as caught:
        replay(scored, [*scored_episodes(scored.lake), "nobody"])
    assert caught.value.exit_code == 2
    with pytest.raises(UserError, match="at least one worker: 0"):
        replay(scored, [], workers=0)
    assert scored.log.ends([SCORES]) == before


def test_no_model_is_loaded(scored: Scored) -> None:
    code = """
import sys
from artifacts import open_store
from eventlog import open_log
from lake import open_lake
from replay.score import rescore, scored_episodes
from sandboxes import open_backend
from verifiers.scoring import here
from schemas.settings import resolve
settings = resolve({"home": sys.argv[1]}, {}).settings
artifacts = open_store(settings)
lake, log, backend = open_lake(settings, artifacts), open_log(settings), open_backend(settings, artifacts)
report = rescore(lake, log, here(artifacts, backend), episode_ids=scored_episodes(lake))
log.close()
backend.close()
print(report.scored, *sorted({"torch", "transformers", "tokenizers", "producers"} & set(sys.modules)))
"""
    scored.sink()
    done = subprocess.run([sys.executable, "-c", code, str(scored.home)], capture_output=True, text=True, check=True,
                          cwd=REPOSITORY)
    assert done.stdout.split() == ["6"]


def test_a_verdict_is_compared_whole() -> None:
    from replay.score import Before, Rescored, Verdict

    before = Before(episode_id="e", run_id="r", score_id="s", submission="x", verifier="tools", verifier_digest="old",
                    seed=0, verdict=Verdict(status="ok", reward=0.5, components={"a": 1.0, "b": 0.0}))
    same = ScoreRecorded(score_id="t", episode_id="e", submission="x", verifier="tools", verifier_digest="new",
                         status="ok", reward=0.5, components={"a": 1.0, "b": 0.0}, started_at=0, finished_at=1)
    assert Rescored(before=before, score=same).outcome == "equal"
    for change, outcome in (({"reward": 0.25}, "changed"), ({"components": {"a": 1.0}}, "changed"),
                            ({"status": "verifier_error", "reward": None}, "changed"),
                            ({"status": "infra_failure", "reward": None}, "failed")):
        assert Rescored(before=before, score=msgspec.structs.replace(same, **change)).outcome == outcome
    row = Rescored(before=before, score=msgspec.structs.replace(same, components={"a": 0.5})).difference()
    assert (row["components"], row["same_verifier"]) == ("a: 1.0 -> 0.5; b: 0.0 -> None", False)
