"""What is to be judged: a stored submission, its task and the task's verifier; or why it cannot be."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from artifacts.store import ArtifactStore
from schemas.enums import ScoreStatus
from schemas.errors import ArtifactError, HeadraceError, NotFoundError
from tasks.task import Submission, Task, load_task
from verifiers.contract import failed
from verifiers.registry import verifier_for
from verifiers.verifier import Score, Verifier

SUBMISSION_BYTES = 256 << 20
"""Files apart, which lie in the workspace. More than this is nothing that a verifier could read."""


class Case(NamedTuple):
    submission: Submission | None = None
    task: Task | None = None
    verifier: Verifier | None = None
    verdict: Score | None = None
    """What is known before any verifier has looked."""

    @property
    def name(self) -> str:
        """Of the verifier, or of the one that should have been there."""
        wanted = self.task.reward_verifier if self.task else ""
        return self.verifier.name if self.verifier else wanted

    @property
    def version(self) -> str:
        return self.verifier.digest if self.verifier else ""


class _Named(msgspec.Struct, frozen=True, kw_only=True):
    """Of a submission no more than whose it is."""

    task_id: str
    task_digest: str


def load_case(submission_digest: str, artifacts: ArtifactStore) -> Case:
    try:
        data = artifacts.get(submission_digest)
        large = len(data) > SUBMISSION_BYTES
        submission = _submission(data, large)
    except (ArtifactError, OSError) as wrong:
        return Case(verdict=failed(ScoreStatus.INFRA_FAILURE, "the submission is not in the store", wrong))
    except (msgspec.MsgspecError, HeadraceError, MemoryError) as wrong:
        return Case(verdict=failed(ScoreStatus.VERIFIER_ERROR, "the submission cannot be read", wrong))
    try:
        task = load_task(submission.task_digest, artifacts)
    except (ArtifactError, OSError) as wrong:
        return Case(submission, verdict=failed(ScoreStatus.INFRA_FAILURE, "the task is not in the store", wrong))
    except HeadraceError as wrong:
        return Case(submission, verdict=failed(ScoreStatus.VERIFIER_ERROR, "the task cannot be read", wrong))
    try:
        verifier = verifier_for(task)
        verifier.digest  # noqa: B018  (a broken one must show here, not while the score is written)
    except Exception as wrong:
        what = "no such verifier" if isinstance(wrong, NotFoundError) else "the verifier cannot be loaded"
        return Case(submission, task, verdict=failed(ScoreStatus.VERIFIER_ERROR, what, wrong))
    return Case(submission, task, verifier, _too_large(len(data)) if large else None)


def _submission(data: bytes, large: bool) -> Submission:
    if not large:
        return msgspec.msgpack.decode(data, type=Submission)
    named = msgspec.msgpack.decode(data, type=_Named)
    return Submission(task_id=named.task_id, task_digest=named.task_digest, workspace=None, answer=None)


def _too_large(size: int) -> Score:
    """The policy's doing, like a file over a limit: nothing of it is looked at, and that is worth 0."""
    return Score(reward=0.0, evidence={"problem": f"{size} bytes were handed in beside the files, over the limit of "
                                                  f"{SUBMISSION_BYTES}", "bytes": size, "limit": SUBMISSION_BYTES})
