"""Event payloads, each in its newest version. MessagePack maps with the field names below; times are microseconds UTC.

Rules of evolution: a field is only ever added, with a default; never renamed, retyped or reused. A breaking change
is a new version and an upcaster from the old one (`schemas.superseded`). Golden bytes and fields of every (type,
version) are kept in tests/golden; docs/schema-evolution.md has the steps.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, get_type_hints

import msgspec

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""What the lake's bigint holds: MessagePack could carry an unsigned value that no table takes."""


class ArtifactRef(msgspec.Struct, frozen=True):
    """A value in the artifact store."""

    digest: str
    size_bytes: Int64
    media_type: str = "application/octet-stream"


class Payload(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all payloads. `NAME` and `TOPIC` say where the event lives."""

    NAME: ClassVar[str]
    TOPIC: ClassVar[str]
    VERSION: ClassVar[int] = 1


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: Int64 = 0
    max_tokens: Int64 = 512
    seed: Int64 = 0

    @property
    def distribution(self) -> str:
        """Which distribution tokens are drawn from, as `turn.generated.sampler` says it."""
        return f"temperature={self.temperature:g} top_p={self.top_p:g} top_k={self.top_k}"


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    max_turns: Int64 = 16
    token_budget: Int64 = 32768
    wall_clock_s: float = 600.0


class SandboxInfo(msgspec.Struct, frozen=True, kw_only=True):
    backend: str
    image: str = ""
    """The image's digest, or `host`."""
    limits: dict[str, float] = {}
    network: str = ""
    """`none`, or `host` where the task asked for it."""


class TaskRegistered(Payload, frozen=True, kw_only=True):
    NAME = "task.registered"
    TOPIC = "tasks"
    task_id: str
    kind: str
    digest: str
    """Digest of the task's spec, which is also the spec's address in the artifact store."""
    set: str
    difficulty: float | None = None
    expected_duration_s: float | None = None
    spec: ArtifactRef
    verifier: str = ""
    """The verifier whose score is the reward; empty: the kind's own."""
    at: Int64 = 0
    quarantined: bool = False
    """Not requested any more: `headrace tasks check` found it flaky, hackable or unsolvable."""
    reason: str = ""


class EpisodeRequested(Payload, frozen=True, kw_only=True):
    NAME = "episode.requested"
    TOPIC = "requests"
    episode_id: str
    run_id: str
    group_id: str
    sample_index: Int64 = 0
    task_id: str
    task_digest: str
    kind: str
    purpose: str = "train"
    policy: str
    sampling: Sampling = Sampling()
    limits: Limits = Limits()
    priority: Int64 = 0
    requested_at: Int64
    version: Int64 | None = None
    """The weight version to sample from; null: the newest the policy has."""


class CancelRequested(Payload, frozen=True, kw_only=True):
    NAME = "episode.cancel_requested"
    TOPIC = "requests"
    episode_id: str
    reason: str = ""
    at: Int64 = 0


class EpisodeStarted(Payload, frozen=True, kw_only=True):
    NAME = "episode.started"
    TOPIC = "trajectories"
    run_id: str
    task_id: str
    policy: str
    tokenizer: str | None = None
    sandbox: SandboxInfo
    attempt: Int64 = 1
    host: str = ""
    at: Int64
    group_id: str = ""
    sample_index: Int64 = 0
    task_digest: str = ""
    kind: str = ""
    purpose: str = "train"
    requested_at: Int64 = 0


class Media(msgspec.Struct, frozen=True, kw_only=True):
    position: Int64
    digest: str
    media_type: str


class TurnGenerated(Payload, frozen=True, kw_only=True):
    NAME = "turn.generated"
    TOPIC = "trajectories"
    turn: Int64
    segment: Int64 = 0
    context: bytes
    """int32 ids appended since the last turn of the segment: template and observations."""
    generated: bytes
    """int32 ids that the policy sampled."""
    logprobs: bytes | None = None
    """float32, one for each generated id; null where nothing was sampled (scripted)."""
    versions: list[tuple[Int64, Int64]] = []
    """Pairs of weight version and how many generated tokens it gave."""
    prefix: str = ""
    """Digest of all ids of the segment before the first generated one."""
    text: str = ""
    finish_reason: str = "stop"
    sampler: str = ""
    media: list[Media] = []
    started_at: Int64
    finished_at: Int64


class ToolCalled(Payload, frozen=True, kw_only=True):
    NAME = "tool.called"
    TOPIC = "trajectories"
    turn: Int64
    call_id: str
    tool: str
    arguments: str
    attempt: Int64 = 1
    at: Int64


class ToolReturned(Payload, frozen=True, kw_only=True):
    NAME = "tool.returned"
    TOPIC = "trajectories"
    turn: Int64
    call_id: str
    attempt: Int64 = 1
    status: str
    exit_code: Int64 | None = None
    output: str = ""
    """What the policy was shown, at most 16 KiB; longer outputs are head and tail here, whole under `output_ref`."""
    output_bytes: Int64 = 0
    truncated: bool = False
    output_ref: ArtifactRef | None = None
    workspace: str | None = None
    """Digest of the workspace after the call; null: unchanged."""
    duration_s: float = 0.0
    at: Int64


class ContextCompacted(Payload, frozen=True, kw_only=True):
    NAME = "context.compacted"
    TOPIC = "trajectories"
    from_segment: Int64
    to_segment: Int64
    method: str
    kept: Int64 = 0
    dropped_tokens: Int64 = 0
    files: list[str] = []
    at: Int64 = 0


class EpisodeResumed(Payload, frozen=True, kw_only=True):
    NAME = "episode.resumed"
    TOPIC = "trajectories"
    attempt: Int64
    """Counts restarts: unchanged when the episode goes on where it stood, one more when `restart` is set."""
    restart: bool = False
    reason: str = ""
    from_sequence: Int64 = 0
    host: str = ""
    at: Int64


class EpisodeFinished(Payload, frozen=True, kw_only=True):
    NAME = "episode.finished"
    TOPIC = "trajectories"
    termination: str
    failure_kind: str | None = None
    answer: str | None = None
    workspace: str | None = None
    submission: ArtifactRef | None = None
    """All that a verifier may look at; null where there is nothing to score (cancelled, infra_failure)."""
    turns: Int64 = 0
    tool_calls: Int64 = 0
    context_token_count: Int64 = 0
    generated_token_count: Int64 = 0
    at: Int64


class ScoreRecorded(Payload, frozen=True, kw_only=True):
    NAME = "score.recorded"
    TOPIC = "scores"
    score_id: str
    episode_id: str
    submission: str
    verifier: str
    verifier_digest: str
    status: str
    reward: float | None = None
    components: dict[str, float] = {}
    evidence: ArtifactRef | None = None
    seed: Int64 = 0
    cause: str = "live"
    """Why this score exists: `live`, or the id of the replay that asked for it."""
    supersedes: str | None = None
    started_at: Int64
    finished_at: Int64
    run_id: str = ""
    task_id: str = ""


class BatchSealed(Payload, frozen=True, kw_only=True):
    NAME = "batch.sealed"
    TOPIC = "training"
    batch_id: str
    run_id: str
    step: Int64
    version: Int64
    """The weight version that this batch is meant to improve."""
    manifest: ArtifactRef
    sha256: str
    """Digest of the Arrow file."""
    episodes: Int64
    sequences: Int64
    tokens: Int64
    packing: str
    snapshot: dict[str, Int64]
    """`topic-partition` to next offset."""
    at: Int64 = 0


class StepCompleted(Payload, frozen=True, kw_only=True):
    NAME = "step.completed"
    TOPIC = "training"
    run_id: str
    step: Int64
    batch_id: str
    metrics: dict[str, float] = {}
    wait_s: float = 0.0
    duration_s: float = 0.0
    checkpoint: str | None = None
    at: Int64 = 0


class WeightsPublished(Payload, frozen=True, kw_only=True):
    NAME = "weights.published"
    TOPIC = "training"
    run_id: str
    version: Int64
    digest: str
    path: str
    step: Int64 | None = None
    at: Int64 = 0


class DeadLettered(Payload, frozen=True, kw_only=True):
    """A record that a reader could not accept, with all that is needed to append it again as it was."""

    NAME = "record.dead_lettered"
    TOPIC = "dead-letters"
    VERSION = 2
    topic: str
    partition: Int64
    offset: Int64
    reason: str
    data: bytes
    headers: list[tuple[str, bytes | None]] = []
    """In their order: a name may stand twice, and a value may be missing."""
    at: Int64 = 0
    key: bytes | None = None
    time_us: Int64 | None = None
    """The record's own time; null where it is not known (version 1 did not keep it)."""


PAYLOADS: tuple[type[Payload], ...] = (
    TaskRegistered, EpisodeRequested, CancelRequested, EpisodeStarted, TurnGenerated, ToolCalled, ToolReturned,
    ContextCompacted, EpisodeResumed, EpisodeFinished, ScoreRecorded, BatchSealed, StepCompleted, WeightsPublished,
    DeadLettered,
)


def fields_of(payload: type[Payload]) -> list[tuple[str, Any]]:
    """Field names and types in wire order: what docs/events.md is generated from."""
    types = get_type_hints(payload)
    return [(field.name, types[field.name]) for field in msgspec.structs.fields(payload)]
