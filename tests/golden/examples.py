"""One payload of every type and version, each field set and none at its default. The bytes lie beside this file."""

from __future__ import annotations

from schemas.events import (
    ArtifactRef,
    BatchSealed,
    CancelRequested,
    ContextCompacted,
    DeadLettered,
    EpisodeFinished,
    EpisodeRequested,
    EpisodeResumed,
    EpisodeStarted,
    Limits,
    Media,
    Payload,
    Sampling,
    SandboxInfo,
    ScoreRecorded,
    StepCompleted,
    TaskRegistered,
    ToolCalled,
    ToolReturned,
    TurnGenerated,
    WeightsPublished,
)
from schemas.superseded import DeadLetteredV1

EPISODE = "0190b0a0-1111-7222-8333-444455556666"
RUN = "0190b0a0-0000-7000-8000-000000000001"
BATCH = "0190b0a0-2222-7000-8000-000000000002"
AT = 1_700_000_000_123_456
A, B, C = ("sha256:" + letter * 64 for letter in "abc")

CURRENT: tuple[Payload, ...] = (
    TaskRegistered(task_id="tools/sum-1", kind="tools", digest=A, set="tools", difficulty=0.25, expected_duration_s=1.5,
                   spec=ArtifactRef(A, 512, "application/vnd.headrace.task+msgpack"), verifier="tools-strict", at=AT),
    EpisodeRequested(episode_id=EPISODE, run_id=RUN, group_id="group-1", sample_index=3, task_id="tools/sum-1",
                     task_digest=A, kind="tools", purpose="eval", policy="tiny",
                     sampling=Sampling(temperature=0.5, top_p=0.9, top_k=20, max_tokens=64, seed=11),
                     limits=Limits(max_turns=6, token_budget=2048, wall_clock_s=30.0), priority=2, requested_at=AT,
                     version=4),
    CancelRequested(episode_id=EPISODE, reason="user asked", at=AT),
    EpisodeStarted(run_id=RUN, task_id="tools/sum-1", policy="tiny", tokenizer=B,
                   sandbox=SandboxInfo(backend="bubblewrap", image="host", limits={"memory_mb": 512.0}), attempt=2,
                   host="worker-1", at=AT, group_id="group-1", sample_index=3, task_digest=A, kind="tools",
                   purpose="eval", requested_at=AT - 1000),
    TurnGenerated(turn=1, segment=1, context=b"\x01\0\0\0\x02\0\0\0", generated=b"\x03\0\0\0\x04\0\0\0",
                  logprobs=b"\0\0\0\xbf\0\0\x80\xbf", versions=[(4, 1), (5, 1)], prefix=C, text="calc 1 + 2\n",
                  finish_reason="length", sampler="tiny-1",
                  media=[Media(position=1, digest=B, media_type="image/png")], started_at=AT, finished_at=AT + 5000),
    ToolCalled(turn=1, call_id="1.0", tool="calc", arguments='{"expression": "1 + 2"}', attempt=2, at=AT),
    ToolReturned(turn=1, call_id="1.0", attempt=2, status="error", exit_code=3, output="3\n…\n", output_bytes=70_000,
                 truncated=True, output_ref=ArtifactRef(B, 70_000, "text/plain"), workspace=C, duration_s=0.125, at=AT),
    ContextCompacted(from_segment=1, to_segment=2, method="summary", kept=100, dropped_tokens=900, files=["notes.md"],
                     at=AT),
    EpisodeResumed(attempt=2, restart=True, reason="sandbox_broken", from_sequence=5, host="worker-2", at=AT),
    EpisodeFinished(termination="infra_failure", failure_kind="sandbox_start", answer="3", workspace=C,
                    submission=ArtifactRef(A, 99, "application/vnd.headrace.submission+msgpack"), turns=2, tool_calls=1,
                    context_token_count=40, generated_token_count=12, at=AT),
    ScoreRecorded(score_id="score-1", episode_id=EPISODE, submission=A, verifier="tools", verifier_digest=B,
                  status="verifier_error", reward=0.75, components={"content": 0.75},
                  evidence=ArtifactRef(C, 7, "text/plain"), seed=5, cause="0190b0a0-3333-7000-8000-000000000003",
                  supersedes="score-0", started_at=AT, finished_at=AT + 10, run_id=RUN, task_id="tools/sum-1"),
    BatchSealed(batch_id=BATCH, run_id=RUN, step=7, version=7, manifest=ArtifactRef(A, 2048, "application/json"),
                sha256=B, episodes=128, sequences=16, tokens=5120, packing="first-fit",
                snapshot={"trajectories-0": 900}, at=AT),
    StepCompleted(run_id=RUN, step=7, batch_id=BATCH, metrics={"loss": -0.5}, wait_s=0.25, duration_s=1.5,
                  checkpoint="checkpoints/7", at=AT),
    WeightsPublished(run_id=RUN, version=8, digest=C, path="weights/8", step=7, at=AT),
    DeadLettered(topic="scores", partition=2, offset=41, reason="header is missing", data=b"\xff\0",
                 headers=[("ce_id", b"x"), ("ce_id", b"y"), ("trace", None)], at=AT, key=b"episode", time_us=AT - 5),
)
"""What writers write."""
SUPERSEDED: tuple[tuple[Payload, Payload], ...] = (
    (DeadLetteredV1(topic="scores", partition=2, offset=41, reason="header is missing", data=b"\xff\0",
                    headers={"ce_id": b"x"}, at=AT),
     DeadLettered(topic="scores", partition=2, offset=41, reason="header is missing", data=b"\xff\0",
                  headers=[("ce_id", b"x")], at=AT)),
)
"""What was written once, and as what it is read today."""
ALL = (*CURRENT, *(old for old, _ in SUPERSEDED))
