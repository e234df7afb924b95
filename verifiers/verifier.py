"""The Verifier contract. A verdict is computed where the policy cannot reach: from the submission alone, in a fresh
sandbox. Null is not 0: a verifier or its infrastructure that failed gives no reward."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from artifacts.store import ArtifactStore
from sandboxes.sandbox import Backend, Sandbox
from schemas.enums import ScoreStatus
from tasks.task import Submission, Task


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """What a verifier says. `evidence` is kept as an artifact: plain data that lets a person see why."""

    status: ScoreStatus = ScoreStatus.OK
    reward: float | None = None
    components: Mapping[str, float] = {}
    evidence: Mapping[str, Any] = {}


class Context(msgspec.Struct, frozen=True, kw_only=True):
    artifacts: ArtifactStore
    sandboxes: Backend
    open_sandbox: Callable[..., Sandbox]
    """A fresh sandbox that holds only the submission's workspace: `open_sandbox(submission, task, readonly={})`."""
    seed: int = 0
    deadline_s: float = 60.0


class Verifier(Protocol):
    name: str

    @property
    def digest(self) -> str:
        """Digest of the verifier's code and configuration."""
        ...

    def verify(self, submission: Submission, task: Task, context: Context) -> Score: ...
