"""The one way to a score, live and in every replay: submission digest in, ScoreRecorded out.

Invariants: it never raises for a bad submission or a broken verifier; a reward is a finite number in [0, 1] and only
with status `ok` and evidence; what infrastructure did is `infra_failure`, what the verifier did is `verifier_error`,
and both have reward None. The same submission, verifier and seed give the same evidence bytes.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from artifacts.store import ArtifactStore
from sandboxes.sandbox import Backend, Limits, Sandbox, SandboxSpec
from schemas.enums import ScoreStatus
from schemas.errors import ArtifactError, HeadraceError, NotFoundError, SandboxError, UnavailableError
from schemas.events import ArtifactRef, ScoreRecorded
from schemas.ids import now_us, stable_id
from tasks.task import Submission, Task, load_submission, load_task
from verifiers import evidence
from verifiers.registry import verifier_for
from verifiers.verifier import Context, Score, Verifier

log = logging.getLogger(__name__)
LIMITS = Limits(output_kb=4096)
"""Of a verifier's sandbox: values of many calls come back on its output."""


def score_submission(submission_digest: str, *, episode_id: str, run_id: str, artifacts: ArtifactStore,
                     backend: Backend, seed: int = 0, deadline_s: float = 60.0, cause: str = "live",
                     supersedes: str | None = None) -> ScoreRecorded:
    """Judge a stored submission in fresh sandboxes."""
    started_at = now_us()
    case = _load(submission_digest, artifacts)
    name = case.verifier.name if case.verifier else ""
    version = case.verifier.digest if case.verifier else ""
    score = case.failure or _judge(case, artifacts, backend, seed, deadline_s)
    score, kept = _keep(score, case, submission_digest, name, version, seed, backend.isolates, artifacts)
    return ScoreRecorded(
        score_id=score_id_of(episode_id, submission_digest, version, cause), episode_id=episode_id,
        submission=submission_digest, verifier=name, verifier_digest=version, status=score.status.value,
        reward=score.reward, components=dict(score.components), evidence=kept, seed=seed, cause=cause,
        supersedes=supersedes, started_at=started_at, finished_at=now_us(), run_id=run_id,
        task_id=case.submission.task_id if case.submission else "")


def score_id_of(episode_id: str, submission: str, verifier_digest: str, cause: str) -> str:
    """Repeatable, so a score written twice counts once. The episode is a part: two episodes may well hand in the
    very same submission, and each needs its score."""
    return stable_id("score", episode_id, submission, verifier_digest, cause)


class _Case(NamedTuple):
    """What is to be judged, or why it cannot be."""

    submission: Submission | None = None
    task: Task | None = None
    verifier: Verifier | None = None
    failure: Score | None = None


def _load(submission_digest: str, artifacts: ArtifactStore) -> _Case:
    try:
        submission = load_submission(submission_digest, artifacts)
    except (ArtifactError, OSError) as wrong:
        return _Case(failure=_failed(ScoreStatus.INFRA_FAILURE, "the submission is not in the store", wrong))
    except (msgspec.MsgspecError, HeadraceError) as wrong:
        return _Case(failure=_failed(ScoreStatus.VERIFIER_ERROR, "the submission cannot be read", wrong))
    try:
        task = load_task(submission.task_digest, artifacts)
    except (ArtifactError, OSError) as wrong:
        return _Case(submission, failure=_failed(ScoreStatus.INFRA_FAILURE, "the task is not in the store", wrong))
    except HeadraceError as wrong:
        return _Case(submission, failure=_failed(ScoreStatus.VERIFIER_ERROR, "the task cannot be read", wrong))
    try:
        verifier = verifier_for(task)
        verifier.digest  # noqa: B018  (a broken one must show here, not while the score is written)
    except Exception as wrong:
        what = "no such verifier" if isinstance(wrong, NotFoundError) else "the verifier cannot be loaded"
        return _Case(submission, task, failure=_failed(ScoreStatus.VERIFIER_ERROR, what, wrong))
    return _Case(submission, task, verifier)


def _failed(status: ScoreStatus, what: str, wrong: BaseException | None = None, **more: Any) -> Score:
    return Score(status=status, evidence={"what": what, **(evidence.trace_of(wrong) if wrong else {}), **more})


class _Fresh:
    """The Backend that a verifier sees: every sandbox of its verdict is closed when the verdict is over."""

    def __init__(self, backend: Backend, owner: str, lease_s: float) -> None:
        self.backend, self.owner, self.lease_s = backend, owner, lease_s
        self.name, self.isolates, self.capabilities = backend.name, backend.isolates, backend.capabilities
        self._open: list[Sandbox] = []
        self._closed = False
        self._lock = threading.Lock()

    def submitted(self, submission: Submission, task: Task, readonly: Mapping[str, Path] | None = None) -> Sandbox:
        files = task.files if submission.workspace is None else {}
        return self.acquire(SandboxSpec(workspace=submission.workspace, files=files, readonly=readonly or {},
                                        limits=LIMITS, owner=self.owner, lease_s=self.lease_s))

    def acquire(self, spec: SandboxSpec) -> Sandbox:
        sandbox = self.backend.acquire(spec)
        with self._lock:
            if not self._closed:
                self._open.append(sandbox)
                return sandbox
        sandbox.close()
        raise SandboxError("the verdict's time is over", kind="sandbox_closed")

    def reap(self) -> int:
        return 0

    def close(self) -> None:
        with self._lock:
            opened, self._open, self._closed = self._open, [], True
        for sandbox in opened:
            try:
                sandbox.close()
            except Exception:
                log.warning("a verifier's sandbox did not close; the reaper will have it", exc_info=True)


def _judge(case: _Case, artifacts: ArtifactStore, backend: Backend, seed: int, deadline_s: float) -> Score:
    """Run the verifier, bounded: on a time-out its sandboxes are closed under it and it is left behind."""
    assert case.submission and case.task and case.verifier
    fresh = _Fresh(backend, f"verify:{case.task.task_id}", max(60.0, 2 * deadline_s))
    context = Context(artifacts=artifacts, sandboxes=fresh, open_sandbox=fresh.submitted, seed=seed,
                      deadline_s=deadline_s)
    result: list[Score] = []

    def run() -> None:
        result.append(_attempt(case.verifier, case.submission, case.task, context))  # type: ignore[arg-type]

    thread = threading.Thread(target=run, name="verdict", daemon=True)
    thread.start()
    thread.join(deadline_s)
    fresh.close()
    if not result:
        return _failed(ScoreStatus.VERIFIER_ERROR, "the verifier did not end before its deadline",
                       deadline_s=deadline_s)
    return result[0]


def _attempt(verifier: Verifier, submission: Submission, task: Task, context: Context) -> Score:
    try:
        return checked(verifier.verify(submission, task, context))
    except SandboxError as wrong:
        return _failed(ScoreStatus.INFRA_FAILURE, "the verifier's sandbox broke", wrong, kind=wrong.kind)
    except (ArtifactError, OSError) as wrong:
        return _failed(ScoreStatus.INFRA_FAILURE, "the machine or the artifact store failed", wrong)
    except UnavailableError as wrong:
        return _failed(ScoreStatus.INFRA_FAILURE, "a component is missing", wrong, hint=wrong.hint)
    except Exception as wrong:
        return _failed(ScoreStatus.VERIFIER_ERROR, "the verifier failed", wrong)


def checked(score: object) -> Score:
    """`score` if it keeps the contract, else a verifier error that shows what it was."""
    fault = _fault(score)
    if not fault:
        assert isinstance(score, Score)
        return score
    return _failed(ScoreStatus.VERIFIER_ERROR, fault, returned=repr(score))


def _fault(score: object) -> str:
    if not isinstance(score, Score):
        return "the verifier returned no Score"
    if score.status != ScoreStatus.OK:
        return "" if score.reward is None else "a reward beside a status that is not ok"
    if not _number(score.reward):
        return "the reward is not a finite number"
    if not 0.0 <= score.reward <= 1.0:  # type: ignore[operator]
        return "the reward is outside [0, 1]"
    wrong = [name for name, value in score.components.items() if not isinstance(name, str) or not _number(value)]
    return f"component {wrong[0]!r} is not a finite number" if wrong else ""


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _keep(score: Score, case: _Case, submission: str, name: str, version: str, seed: int, isolated: bool,
          artifacts: ArtifactStore) -> tuple[Score, ArtifactRef | None]:
    """Store the evidence. No evidence, no reward."""
    document = {
        "submission": submission, "task_id": case.task.task_id if case.task else None,
        "task_digest": case.submission.task_digest if case.submission else None, "verifier": name,
        "verifier_digest": version, "isolated": isolated, "seed": seed,
        "status": score.status.value, "reward": score.reward, "components": dict(score.components),
        "details": dict(score.evidence)}
    try:
        return score, artifacts.put(evidence.encode(document), evidence.MEDIA_TYPE)
    except (ArtifactError, OSError) as wrong:
        log.error("evidence cannot be stored: %s", wrong)
        return Score(status=ScoreStatus.INFRA_FAILURE), None
