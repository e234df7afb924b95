"""What a task is. A spec is data: its canonical bytes are an artifact whose digest is the task's digest."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from artifacts.store import ArtifactStore
from schemas.errors import TaskError
from schemas.events import ArtifactRef, Limits, TaskRegistered
from schemas.ids import now_us

MEDIA_TYPE = "application/vnd.headrace.task+msgpack"


class Task(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A problem to solve in a sandbox, and how its solution is judged."""

    task_id: str
    kind: str
    set: str
    prompt: str
    dialect: str = "json"
    """How turns are written: `line` (one command a line) or `json`."""
    tools: list[str] = []
    files: dict[str, bytes] = {}
    """The workspace at the start: relative path to content."""
    aliases: list[str] = []
    """Absolute paths at which the workspace is seen too, in an episode and by the verifier (`/app`)."""
    environment: dict[str, str] = {}
    """Variables of every command."""
    image: str = ""
    """The programs of its sandbox, as the backend names them: `SandboxSpec.image`."""
    setup: list[str] = []
    """Shell commands that run once over the image and the files, before any episode."""
    setup_network: Literal["none", "host"] = "none"
    network: Literal["none", "host"] = "none"
    """Of its episodes. Verifiers have none."""
    terminal: str = "done"
    """Terminal predicate, by name in `tasks/terminal.py`."""
    limits: Limits = Limits()
    verifier: str = ""
    """Empty: the verifier of the task's kind."""
    hidden: dict[str, Any] = {}
    """What only the verifier may see (tests, wanted values). Never enters an episode's sandbox or context."""
    reference: list[str] = []
    """Turns of a solution that must score 1 (policy `scripted:reference`). Hidden too."""
    variants: dict[str, list[str]] = {}
    """More scripts by name (`wrong`, `partial`, ...) whose rewards are known to differ. Hidden too."""
    difficulty: float | None = None
    expected_duration_s: float | None = None

    @property
    def reward_verifier(self) -> str:
        return self.verifier or self.kind


_ENCODER = msgspec.msgpack.Encoder(order="deterministic")
_DECODER = msgspec.msgpack.Decoder(Task)


def store_task(task: Task, artifacts: ArtifactStore) -> TaskRegistered:
    """Put the spec into the store; the payload that registers it."""
    ref = artifacts.put(_ENCODER.encode(task), MEDIA_TYPE)
    return TaskRegistered(task_id=task.task_id, kind=task.kind, digest=ref.digest, set=task.set, spec=ref,
                          difficulty=task.difficulty, expected_duration_s=task.expected_duration_s,
                          verifier=task.reward_verifier, at=now_us())


def load_task(digest: str, artifacts: ArtifactStore) -> Task:
    """The task of a digest. Raises ArtifactError if the spec is not in the store."""
    try:
        return _DECODER.decode(artifacts.get(digest))
    except msgspec.MsgspecError as wrong:
        raise TaskError(f"task spec cannot be read ({wrong})", where=digest) from None


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """All that a verifier may look at; an artifact named by `episode.finished`."""

    task_id: str
    task_digest: str
    workspace: str | None
    """Digest of the final workspace's snapshot; null: the task's own files, unchanged."""
    answer: str | None
    calls: list[SubmittedCall] = []
    termination: str = "completed"


class SubmittedCall(msgspec.Struct, frozen=True, kw_only=True):
    turn: int
    tool: str
    arguments: str
    status: str
    output: str
    """What the policy was shown."""


SUBMISSION_MEDIA_TYPE = "application/vnd.headrace.submission+msgpack"
_SUBMISSION_DECODER = msgspec.msgpack.Decoder(Submission)


def store_submission(submission: Submission, artifacts: ArtifactStore) -> ArtifactRef:
    return artifacts.put(_ENCODER.encode(submission), SUBMISSION_MEDIA_TYPE)


def load_submission(digest: str, artifacts: ArtifactStore) -> Submission:
    return _SUBMISSION_DECODER.decode(artifacts.get(digest))
