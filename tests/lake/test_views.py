"""Views on hand-made histories: first-id-wins, current scores, every disposition, groups, latencies, snapshots."""

from __future__ import annotations

import random

import pytest

from artifacts.store import DirectoryStore
from lake.lake import Lake
from lake.views import PUBLIC
from schemas.enums import Disposition
from schemas.envelope import Event, wire_type
from schemas.errors import QueryError
from schemas.ids import digest
from schemas.topics import TRAJECTORIES
from tests.lake.histories import Story, pour, records_of, rows, whole_story

CONTRACT = {
    "requests": "episode_id, run_id, group_id, task_id, kind, purpose, policy, sample_index, priority, requested_at",
    "episodes": "episode_id, run_id, group_id, task_id, kind, purpose, policy, version_min, version_max, attempt, "
                "termination, failure_kind, turns, tool_calls, context_token_count, generated_token_count, answer, "
                "workspace, submission, started_at, finished_at",
    "turns": "episode_id, turn, segment, attempt, context_tokens, generated_tokens, logprobs, version_min, "
             "version_max, text, finish_reason, started_at, finished_at",
    "tool_calls": "episode_id, turn, call_id, tool, arguments, status, exit_code, attempt, output, output_bytes, "
                  "truncated, workspace, started_at, finished_at",
    "scores": "score_id, episode_id, submission, verifier, verifier_digest, status, reward, components, evidence, "
              "supersedes, cause, scored_at",
    "current_scores": "score_id, episode_id, submission, verifier, verifier_digest, status, reward, components, "
                      "evidence, supersedes, cause, scored_at",
    "batches": "batch_id, run_id, step, version, episodes, sequences, tokens, packing, snapshot, sha256, sealed_at",
    "batch_rows": "batch_id, episode_id, segment, sequence, position, tokens, trained_tokens, reward, advantage",
    "steps": "run_id, step, batch_id, loss, grad_norm, kl, entropy, clip_fraction, tokens, wait_s, duration_s, at",
    "weights": "run_id, version, digest, path, published_at",
    "dispositions": "run_id, episode_id, disposition, reason, batch_id",
    "stage_latency": "episode_id, stage, started_at, duration_s",
    "groups": "run_id, group_id, task_id, requested, finished, scored, reward_mean, reward_std",
    "tasks": "task_id, kind, set, digest, difficulty, expected_duration_s, quarantined, reason",
    "events": "id, type, version, subject, sequence, source, run_id, topic, partition, offset, time, admitted, reason, "
              "data",
    "dead_letters": "topic, partition, offset, reason, data, at"}
TYPES = {"turns.context_tokens": "INTEGER[]", "turns.generated_tokens": "INTEGER[]", "turns.logprobs": "FLOAT[]",
         "scores.components": "MAP(VARCHAR, DOUBLE)", "batches.snapshot": "MAP(VARCHAR, BIGINT)",
         "scores.reward": "DOUBLE", "episodes.turns": "BIGINT", "episodes.finished_at": "TIMESTAMP WITH TIME ZONE"}


@pytest.mark.parametrize("filled", [False, True])
def test_every_name_of_the_contract_is_there_in_order(
        lake: Lake, artifacts: DirectoryStore, story: Story, filled: bool) -> None:
    if filled:
        whole_story(story)
        pour(lake, artifacts, records_of(story.told))
    for name, columns in CONTRACT.items():
        described = dict(rows(lake, f"select column_name, column_type from (describe {name})"))
        wanted = columns.split(", ")
        assert list(described)[:len(wanted)] == wanted, name
        for column, kind in TYPES.items():
            if column.startswith(f"{name}."):
                assert described[column.partition(".")[2]] == kind
        found = lake.sql(f"select * from {name}")
        assert found.num_rows or not filled, name
    assert set(CONTRACT) <= set(PUBLIC)
    assert [name for name, in rows(lake, "show tables")] == sorted(PUBLIC)


def test_no_further_column_makes_a_join_ambiguous(lake: Lake) -> None:
    """A query by the contract's columns must not fail because two tables have a further column of one name."""
    contracted = {name: set(columns.split(", ")) for name, columns in CONTRACT.items()}
    positions = {"topic", "partition", "offset"}  # Every row has them.
    for name in CONTRACT:
        further = {column for column, in rows(lake, f"select column_name from (describe {name})")} - contracted[name]
        for other, columns in contracted.items():
            assert not further & (columns - positions), (name, other)


def test_the_first_of_a_fact_wins(lake: Lake, artifacts: DirectoryStore, story: Story) -> None:
    story.request("e")
    story.request("e", purpose="eval", group="group-2")
    story.start("e")
    story.finish("e")
    story.score("e", 0.25, score_id="s")
    story.score("e", 1.0, score_id="s")
    story.trained(0, "batch-1", loss=0.5)
    story.trained(0, "batch-2", loss=0.75)
    story.seal("batch-1", 0, {"e": "trained"})
    story.seal("batch-2", 0, {"e": "stale"})
    pour(lake, artifacts, records_of(story.told))
    assert rows(lake, "select purpose, group_id from requests") == [("train", "group-1")]
    assert rows(lake, "select reward from scores") == [(0.25,)]
    assert rows(lake, "select batch_id, loss, tokens from steps") == [("batch-1", 0.5, 12)]
    assert rows(lake, "select version, path from weights") == [(1, "w")]
    assert rows(lake, "select batch_id, snapshot from batches") == [("batch-1", [("scores-0", 3)])]
    assert rows(lake, "select batch_id, episode_id, advantage from batch_rows") == [("batch-1", "e", 0.5)]
    assert rows(lake, "select disposition, batch_id from dispositions") == [("trained", "batch-1")]


def test_the_current_score_is_the_newest_of_the_tasks_verifier(
        lake: Lake, artifacts: DirectoryStore, story: Story) -> None:
    story.task("plain")
    story.task("special", verifier="judge")
    story.request("a", task="plain")
    story.request("b", task="special")
    story.request("c", task="nobody registered it", kind="math")
    for episode in "abc":
        story.start(episode)
        story.finish(episode)
    story.score("a", 0.5)
    story.score("a", 1.0, cause="replay-1")
    story.score("a", 0.0, verifier="judge")
    story.score("b", 0.5)
    story.score("b", 0.75, verifier="judge")
    story.score("c", 0.125, verifier="math")
    pour(lake, artifacts, records_of(story.told))
    assert rows(lake, "select episode_id, reward, cause, components from current_scores order by 1") == [
        ("a", 1.0, "replay-1", [("content", 0.5)]), ("b", 0.75, "live", [("content", 0.5)]),
        ("c", 0.125, "live", [("content", 0.5)])]
    assert lake.sql("select count(*) as n from scores").to_pylist() == [{"n": 6}]


def test_a_task_registered_again_is_the_newest_but_old_requests_keep_their_verifier(
        lake: Lake, artifacts: DirectoryStore, story: Story) -> None:
    story.task(verifier="judge", version=1)
    story.request("old", version=1)
    story.task(verifier="tools", version=2)
    story.request("new", version=2)
    for episode in ("old", "new"):
        story.start(episode)
        story.finish(episode)
        story.score(episode, 0.25, verifier="judge")
        story.score(episode, 0.75, verifier="tools")
    pour(lake, artifacts, records_of(story.told))
    assert rows(lake, "select reward_verifier, quarantined from tasks") == [("tools", False)]
    assert rows(lake, "select episode_id, reward from current_scores order by 1") == [("new", 0.75), ("old", 0.25)]


def tell_every_disposition(story: Story) -> dict[str, tuple[str, str]]:
    """Episode to the disposition and reason that it must have."""
    story.task()
    told = {
        "trained": ("trained", "rule"), "masked": ("masked", "rule"), "stale": ("stale", "rule"),
        "surplus": ("surplus", "rule"), "filtered": ("filtered", "rule"), "late-cancel": ("trained", "rule"),
        "cancelled": ("cancelled", "finished_cancelled"), "infra": ("infra_failed", "sandbox_start"),
        "infra-unnamed": ("infra_failed", "infra_failure"), "unscored": ("unscored", "verifier_error"),
        "unscored-eval": ("unscored", "infra_failure"), "no-submission": ("unscored", "no_submission"),
        "evaluated": ("evaluated", "scored"), "waiting": ("pending", "waiting_for_batch"),
        "unverified": ("pending", "not_scored"), "running": ("pending", "unfinished"),
        "called-off": ("pending", "cancel_requested"), "untouched": ("pending", "not_started"),
        "wrong-verifier": ("pending", "not_scored")}
    evals = {"unscored-eval", "evaluated"}
    story.request(*(name for name in told if name not in evals))
    story.request(*evals, purpose="eval", group="group-2")
    for name in told:
        if name not in ("untouched", "called-off"):
            story.start(name, purpose="eval" if name in evals else "train")
    for name in ("trained", "masked", "stale", "surplus", "filtered", "late-cancel", "waiting", "evaluated"):
        story.finish(name)
        story.score(name)
    story.finish("cancelled", "cancelled")
    story.finish("infra", "infra_failure", failure_kind="sandbox_start")
    story.finish("infra-unnamed", "infra_failure")
    story.finish("no-submission", "policy_error")
    for name in ("unscored", "unscored-eval", "unverified", "wrong-verifier"):
        story.finish(name)
    story.score("unscored", None, "verifier_error")
    story.score("unscored-eval", None, "infra_failure")
    story.score("wrong-verifier", 1.0, verifier="scene")
    story.cancel("called-off")
    story.cancel("late-cancel")  # Void after the finish.
    decided = ("trained", "masked", "stale", "surplus", "filtered", "late-cancel")
    story.seal("batch-1", 0, {name: told[name][0] for name in decided})
    return told


def test_every_requested_episode_has_exactly_its_disposition(
        lake: Lake, artifacts: DirectoryStore, story: Story) -> None:
    told = tell_every_disposition(story)
    pour(lake, artifacts, records_of(story.told))
    found = rows(lake, "select episode_id, disposition, reason, batch_id from dispositions")
    assert {episode: (disposition, reason) for episode, disposition, reason, _ in found} == told
    assert len(found) == len(told)
    assert {disposition for _, disposition, _, _ in found} == set(Disposition)
    decided = {"trained", "masked", "stale", "surplus", "filtered"}
    assert all((batch == "batch-1") == (disposition in decided) for _, disposition, _, batch in found)
    assert lake.verify() == []


def test_an_episode_whose_finish_cannot_be_read_is_not_pending_for_ever(
        lake: Lake, artifacts: DirectoryStore, story: Story) -> None:
    story.request("e")
    story.start("e")
    finished = Event("f", "writer-1", wire_type("episode.finished"), "e", 1, story.time_us, b"\x80")
    story.told.append((TRAJECTORIES, finished))
    pour(lake, artifacts, records_of(story.told))
    assert rows(lake, "select disposition, reason from dispositions") == [("infra_failed", "unreadable_finish")]
    assert rows(lake, "select count(*) from dead_letters") == [(1,)]
    assert lake.verify() == []


def ruling(finish: str, score: str, purpose: str, decided: str) -> str:
    """The contract's rules once more, in other words."""
    if decided:
        return decided
    if finish in ("cancelled", "infra_failure"):
        return {"cancelled": "cancelled", "infra_failure": "infra_failed"}[finish]
    if finish == "policy_error" or (finish and score in ("infra_failure", "verifier_error")):
        return "unscored"
    return "evaluated" if finish and score and purpose == "eval" else "pending"


@pytest.mark.parametrize("seed", range(3))
def test_any_history_has_one_ruling_for_each_episode(
        lake: Lake, artifacts: DirectoryStore, story: Story, seed: int) -> None:
    chance = random.Random(seed)
    told, decisions = {}, {}
    story.task()
    for number in range(40):
        name, purpose = f"e{number}", chance.choice(["train", "train", "eval"])
        finish = chance.choice(["", "completed", "max_turns", "cancelled", "infra_failure", "policy_error"])
        score = chance.choice(["", "ok", "ok", "infra_failure", "verifier_error"]) if finish[:2] in ("co", "ma") else ""
        story.request(name, purpose=purpose, group=f"g{number % 7}")
        story.start(name, purpose=purpose)
        if finish:
            story.finish(name, finish)
        if score:
            story.score(name, 0.5 if score == "ok" else None, score)
        decided = chance.choice(["", "trained", "masked", "stale", "surplus", "filtered"]) if score == "ok" else ""
        decisions.update({name: decided} if decided and purpose == "train" else {})
        told[name] = ruling(finish, score, purpose, decisions.get(name, ""))
    story.seal("batch-1", 0, decisions)
    pour(lake, artifacts, records_of(story.told), size=chance.randint(5, 60))
    assert dict(rows(lake, "select episode_id, disposition from dispositions")) == told
    assert rows(lake, "select sum(requested) from groups") == [(40,)]
    assert rows(lake, "select count(*) from dispositions") == [(40,)]
    assert lake.verify() == []


def test_an_episode_is_decided_by_the_first_batch_that_names_it(
        lake: Lake, artifacts: DirectoryStore, story: Story) -> None:
    story.task()
    story.request("e")
    story.episode("e")
    story.seal("batch-1", 0, {"e": "surplus"})
    story.seal("batch-2", 1, {"e": "trained"})
    pour(lake, artifacts, records_of(story.told))
    assert rows(lake, "select disposition, batch_id from dispositions") == [("surplus", "batch-1")]
    assert any("decided 2 times" in problem for problem in lake.verify())


def test_a_batch_of_another_run_decides_nothing_here(lake: Lake, artifacts: DirectoryStore, story: Story) -> None:
    story.task()
    story.request("e")
    story.request("other", run_id="run-2")
    for episode in ("e", "other"):
        story.episode(episode)
    story.seal("batch-1", 0, {"e": "trained", "other": "trained"})
    pour(lake, artifacts, records_of(story.told))
    assert rows(lake, "select run_id, episode_id, disposition from dispositions order by 1") == [
        ("run-1", "e", "trained"), ("run-2", "other", "pending")]
    assert any("never requested" in problem for problem in lake.verify())


def test_an_episode_requested_twice_counts_once(lake: Lake, artifacts: DirectoryStore, story: Story) -> None:
    story.request("e")
    story.request("e")
    pour(lake, artifacts, records_of(story.told))
    assert rows(lake, "select episode_id, disposition from dispositions") == [("e", "pending")]


def test_groups_count_and_average(lake: Lake, artifacts: DirectoryStore, story: Story) -> None:
    story.task()
    story.request("a", "b", "c", "d")
    story.request("alone", group="group-2")
    story.episode("a", 1.0)
    story.episode("b", 0.5)
    story.episode("c", None)
    story.score("c", None, "verifier_error")
    pour(lake, artifacts, records_of(story.told))
    assert rows(lake, "select * from groups order by group_id") == [
        ("run-1", "group-1", "task-1", 4, 3, 2, 0.75, 0.25), ("run-1", "group-2", "task-1", 1, 0, 0, None, None)]


def test_stage_latency_tells_what_was_measured(lake: Lake, artifacts: DirectoryStore, story: Story) -> None:
    story.task()
    story.request("e")
    story.episode("e")
    story.seal("batch-1", 0, {"e": "trained"})
    story.time_us += 2_000_000
    story.trained(0, "batch-1")
    pour(lake, artifacts, records_of(story.told))
    stages = dict(rows(lake, "select stage, round(duration_s, 4) from stage_latency where episode_id = 'e'"))
    assert stages == {"queue": 0.001, "sandbox": 0.0, "model": 0.0005, "tool": 0.25, "verify": 0.001, "batch": 0.001,
                      "wait": 2.001}
    assert rows(lake, "select count(*) from stage_latency where started_at is null") == [(0,)]


def test_the_sandbox_of_a_restart_counts_too_and_a_resumed_call_does_not(
        lake: Lake, artifacts: DirectoryStore, story: Story) -> None:
    story.start("e")
    story.time_us += 3_000_000
    story.turn("e")
    story.resume("e", "writer-2")
    story.call("e", source="writer-2")
    story.resume("e", "writer-3", restart=True, attempt=2)
    story.time_us += 1_000_000
    story.turn("e", source="writer-3")
    pour(lake, artifacts, records_of(story.told))
    query = "select round(duration_s, 4) from stage_latency where stage = 'sandbox' order by started_at"
    assert rows(lake, query) == [(2.9995,), (0.9995,)]


def test_infrastructure_never_hides_a_verdict(lake: Lake, artifacts: DirectoryStore, story: Story) -> None:
    """Unless the newer failure is about another submission, which the older verdict says nothing about."""
    story.request("kept", "moved", "never", "error")
    for episode in ("kept", "moved", "never", "error"):
        story.start(episode)
        story.finish(episode)
    story.score("kept", 0.25)
    story.score("kept", 0.75, cause="replay-1")
    story.score("kept", None, status="infra_failure", cause="replay-2")
    story.score("moved", 0.5)
    story.score("moved", None, status="infra_failure", cause="replay-1", submission=digest(b"another"))
    story.score("never", None, status="infra_failure")
    story.score("never", None, status="infra_failure", cause="replay-1")
    story.score("error", 0.5)
    story.score("error", None, status="verifier_error", cause="replay-1")
    pour(lake, artifacts, records_of(story.told))
    assert rows(lake, "select episode_id, status, reward, cause from current_scores order by 1") == [
        ("error", "verifier_error", None, "replay-1"), ("kept", "ok", 0.75, "replay-1"),
        ("moved", "infra_failure", None, "replay-1"), ("never", "infra_failure", None, "replay-1")]


def test_a_snapshot_is_one_moment_for_all_tables(lake: Lake, artifacts: DirectoryStore, story: Story) -> None:
    story.task()
    story.request("a")
    story.episode("a")
    first = len(story.told)
    story.request("b")
    story.episode("b")
    story.seal("batch-1", 0, {"a": "trained"})
    records = records_of(story.told)
    pour(lake, artifacts, records)
    then = {}
    for record in records[:first]:
        then[f"{record.position.topic}-{record.position.partition}"] = record.position.offset + 1
    query = """select episode_id, disposition, (select count(*) from turns), (select count(*) from events)
        from dispositions"""
    assert lake.sql(query, as_of=then).to_pylist() == [
        dict(zip(lake.sql(query).column_names, ("a", "pending", 1, first), strict=True))]
    assert lake.sql(query).num_rows == 2
    with pytest.raises(QueryError, match="beyond what the lake holds"):
        lake.sql(query, as_of={"scores-0": 1000})


def test_times_are_utc_and_json_like_values_survive(lake: Lake, artifacts: DirectoryStore, story: Story) -> None:
    story.request("e")
    pour(lake, artifacts, records_of(story.told))
    found = lake.sql("select requested_at from requests")
    assert str(found.schema.field("requested_at").type) == "timestamp[us, tz=UTC]"
    assert rows(lake, "select requested_at::varchar from requests") == [("2023-11-14 22:13:20+00",)]
