"""The one way to a score, live and in every replay: submission digest in, ScoreRecorded out.

Invariants: it never raises for a bad submission or a broken verifier; a reward is a finite number in [0, 1] and only
with status `ok` and evidence; what infrastructure did is `infra_failure`, what the verifier did is `verifier_error`,
and both have reward None. The same submission, verifier and seed give the same evidence bytes.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from artifacts.store import ArtifactStore
from sandboxes.sandbox import Backend, Limits, Sandbox, SandboxSpec
from sandboxes.wanted import spec_for
from schemas.enums import ScoreStatus
from schemas.errors import ArtifactError, HeadraceError, NotFoundError, SandboxError, UnavailableError
from schemas.events import ArtifactRef, ScoreRecorded
from schemas.ids import now_us, stable_id
from tasks.task import Submission, Task, load_submission, load_task
from verifiers import evidence
from verifiers.registry import verifier_for
from verifiers.verdicts import Verdict, Verdicts, key_of
from verifiers.verifier import Context, Score, Verifier

log = logging.getLogger(__name__)
LIMITS = Limits(output_kb=4096)
"""Of a verifier's sandbox: values of many calls come back on its output."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be judged, and for whom."""

    submission: str
    """Digest."""
    episode_id: str
    run_id: str
    seed: int = 0
    deadline_s: float = 60.0
    """What the verifier is told; `verifiers.judges` enforces it from outside."""
    cause: str = "live"
    supersedes: str | None = None


Scorer = Callable[[Request], ScoreRecorded]
"""How a consumer has verdicts given: `Judges.score`, in processes of their own, or `here`."""


def here(artifacts: ArtifactStore, backend: Backend) -> Scorer:
    """Verdicts in this process, without a deadline from outside."""
    return lambda request: judge(request, artifacts, backend)


def judge(request: Request, artifacts: ArtifactStore, backend: Backend, cache: Verdicts | None = None) -> ScoreRecorded:
    """Judge a stored submission in fresh sandboxes, unless `cache` holds the verdict."""
    began = now_us()
    case = _load(request.submission, artifacts)
    key = key_of(request.submission, case.version, request.seed, backend.isolates)
    if cache and not case.failure and (known := cache.get(key)) and artifacts.has(known.evidence.digest):
        return _recorded(request, case, Score(reward=known.reward, components=known.components), known.evidence, began)
    score = case.failure or _judge(case, artifacts, backend, request.seed, request.deadline_s)
    score, kept = _keep(score, request, case, backend.isolates, artifacts)
    if cache and score.reward is not None and kept:
        cache.put(key, Verdict(reward=score.reward, components=dict(score.components), evidence=kept))
    return _recorded(request, case, score, kept, began)


def failed_score(request: Request, status: ScoreStatus, what: str, details: Mapping[str, Any],
                 artifacts: ArtifactStore) -> ScoreRecorded:
    """The record of a verdict that was never given, for what happened outside of the verifier."""
    began = now_us()
    case = _load(request.submission, artifacts)
    score, kept = _keep(case.failure or _failed(status, what, **details), request, case, None, artifacts)
    return _recorded(request, case, score, kept, began)


def _recorded(asked: Request, case: _Case, score: Score, kept: ArtifactRef | None, began: int) -> ScoreRecorded:
    return ScoreRecorded(
        score_id=score_id_of(asked.episode_id, asked.submission, case.version, asked.cause),
        episode_id=asked.episode_id, submission=asked.submission, verifier=case.name, verifier_digest=case.version,
        status=score.status.value, reward=score.reward, components=dict(score.components), evidence=kept,
        seed=asked.seed, cause=asked.cause, supersedes=asked.supersedes, started_at=began, finished_at=now_us(),
        run_id=asked.run_id, task_id=case.submission.task_id if case.submission else "")


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

    @property
    def name(self) -> str:
        """Of the verifier, or of the one that should have been there."""
        wanted = self.task.reward_verifier if self.task else ""
        return self.verifier.name if self.verifier else wanted

    @property
    def version(self) -> str:
        return self.verifier.digest if self.verifier else ""


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

    def submitted(self, submission: Submission, task: Task, readonly: Mapping[str, Path] | None = None) -> Sandbox:
        return self.acquire(spec_for(
            task, submission.workspace, readonly=readonly, limits=LIMITS, owner=self.owner, lease_s=self.lease_s,
            network="none"))

    def acquire(self, spec: SandboxSpec) -> Sandbox:
        sandbox = self.backend.acquire(spec)
        self._open.append(sandbox)
        return sandbox

    def identify(self, image: str) -> str:
        return self.backend.identify(image)

    def reap(self) -> int:
        return 0

    def close(self) -> None:
        for sandbox in self._open:
            try:
                sandbox.close()
            except Exception:
                log.warning("a verifier's sandbox did not close; the reaper will have it", exc_info=True)


def _judge(case: _Case, artifacts: ArtifactStore, backend: Backend, seed: int, deadline_s: float) -> Score:
    assert case.submission and case.task and case.verifier
    fresh = _Fresh(backend, f"verify:{case.task.task_id}", max(60.0, 2 * deadline_s))
    context = Context(artifacts=artifacts, sandboxes=fresh, open_sandbox=fresh.submitted, seed=seed,
                      deadline_s=deadline_s)
    try:
        return _attempt(case.verifier, case.submission, case.task, context)
    finally:
        fresh.close()


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


def _keep(score: Score, asked: Request, case: _Case, isolated: bool | None,
          artifacts: ArtifactStore) -> tuple[Score, ArtifactRef | None]:
    """Store the evidence. No evidence, no reward."""
    document = {
        "submission": asked.submission, "task_id": case.task.task_id if case.task else None,
        "task_digest": case.submission.task_digest if case.submission else None, "verifier": case.name,
        "verifier_digest": case.version, "isolated": isolated, "seed": asked.seed,
        "status": score.status.value, "reward": score.reward, "components": dict(score.components),
        "details": dict(score.evidence)}
    try:
        return score, artifacts.put(evidence.encode(document), evidence.MEDIA_TYPE)
    except (ArtifactError, OSError) as wrong:
        log.error("evidence cannot be stored: %s", wrong)
        return Score(status=ScoreStatus.INFRA_FAILURE), None
