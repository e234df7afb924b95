"""Arrow schemas hold the names and types that users write queries against, and commit order ends with `events`."""

from __future__ import annotations

import pyarrow as pa

from schemas.tables import COMMIT_ORDER, POSITION, TABLES, TIME
from schemas.topics import SINGLE_PARTITION, TOPICS, partition_for, partitions_of

CONTRACT = {
    "requests": "episode_id run_id group_id task_id kind purpose policy sample_index priority requested_at",
    "episodes": "episode_id run_id group_id task_id kind purpose policy version_min version_max attempt termination "
                "failure_kind turns tool_calls context_token_count generated_token_count answer workspace submission "
                "started_at finished_at",
    "turns": "episode_id turn segment attempt context_tokens generated_tokens logprobs version_min version_max text "
             "finish_reason started_at finished_at",
    "tool_calls": "episode_id turn call_id tool arguments status exit_code attempt output output_bytes truncated "
                  "workspace started_at finished_at",
    "scores": "score_id episode_id submission verifier verifier_digest status reward components evidence supersedes "
              "cause scored_at",
    "batches": "batch_id run_id step version episodes sequences tokens packing snapshot sha256 sealed_at",
    "batch_rows": "batch_id episode_id segment sequence position tokens trained_tokens reward advantage",
    "steps": "run_id step batch_id loss grad_norm kl entropy clip_fraction tokens wait_s duration_s at",
    "weights": "run_id version digest path published_at",
    "tasks": "task_id kind set digest difficulty expected_duration_s quarantined reason",
    "dead_letters": "topic partition offset reason data at",
    "events": "id type version subject sequence source run_id topic partition offset time admitted reason data",
}


def test_every_promised_column_is_there_in_order() -> None:
    for table, columns in CONTRACT.items():
        promised = columns.split()
        assert TABLES[table].names[:len(promised)] == promised, table


def test_types_follow_the_contract() -> None:
    for table, schema in TABLES.items():
        for field in schema:
            if field.name.endswith("_at") or field.name in {"at", "time"}:
                assert field.type == TIME, (table, field.name)
            if field.name in {"reward", "advantage", "loss"}:
                assert field.type == pa.float64(), (table, field.name)
            if field.name.endswith("_id"):
                assert field.type == pa.string(), (table, field.name)
    assert TABLES["turns"].field("generated_tokens").type == pa.list_(pa.int32())
    assert TABLES["turns"].field("logprobs").type == pa.list_(pa.float32())


def test_every_row_carries_its_position_and_events_commits_last() -> None:
    for table, schema in TABLES.items():
        assert {name for name, _ in POSITION} <= set(schema.names), table
    assert COMMIT_ORDER[-1] == "events"


def test_requests_and_trajectories_are_co_partitioned() -> None:
    assert partitions_of("requests") == partitions_of("trajectories")
    assert {topic for topic in TOPICS if partitions_of(topic) == 1} == SINGLE_PARTITION


def test_the_partition_of_a_subject_never_changes() -> None:
    """Stored logs depend on it."""
    assert [partition_for(subject, 4) for subject in ("", "b", "é", "c")] == [0, 1, 2, 3]
