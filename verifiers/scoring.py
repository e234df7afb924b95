"""The one way to a score, live and in every replay: submission digest in, ScoreRecorded out.

Invariants: it never raises for a bad submission or a broken verifier; a reward is a finite number in [0, 1] and only
with status `ok` and evidence; what infrastructure did is `infra_failure`, what the verifier did is `verifier_error`,
and both have reward None. The same submission, verifier and seed give the same evidence bytes.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from artifacts.store import ArtifactStore
from sandboxes.sandbox import Backend, Limits, Sandbox, SandboxSpec
from sandboxes.wanted import spec_for
from schemas.enums import ScoreStatus
from schemas.errors import ArtifactError, SandboxError, UnavailableError
from schemas.events import ArtifactRef, ScoreRecorded
from schemas.ids import now_us, stable_id
from tasks.task import Submission, Task
from verifiers import evidence
from verifiers.case import Case, load_case
from verifiers.contract import checked, failed
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
    return judge_case(load_case(request.submission, artifacts), request, artifacts, backend, cache)


def judge_case(case: Case, request: Request, artifacts: ArtifactStore, backend: Backend,
               cache: Verdicts | None = None) -> ScoreRecorded:
    began = now_us()
    if case.verdict:
        return _kept(request, case, case.verdict, None, artifacts, began)
    key = key_of(request.submission, case.version, request.seed, backend.isolates)
    if cache and (known := cache.get(key)) and artifacts.has(known.evidence.digest):
        return _recorded(request, case, Score(reward=known.reward, components=known.components), known.evidence, began)
    score = _judge(case, artifacts, backend, request.seed, request.deadline_s)
    given = _kept(request, case, score, backend.isolates, artifacts, began)
    if cache and given.reward is not None and given.evidence:
        cache.put(key, Verdict(reward=given.reward, components=given.components, evidence=given.evidence))
    return given


def failed_score(request: Request, status: ScoreStatus, what: str, details: Mapping[str, Any],
                 artifacts: ArtifactStore) -> ScoreRecorded:
    """The record of a verdict that was never given, for what happened outside of the verifier."""
    case = load_case(request.submission, artifacts)
    return _kept(request, case, case.verdict or failed(status, what, **details), None, artifacts, now_us())


def _kept(request: Request, case: Case, score: Score, isolated: bool | None, artifacts: ArtifactStore,
          began: int) -> ScoreRecorded:
    score, ref = _keep(score, request, case, isolated, artifacts)
    return _recorded(request, case, score, ref, began)


def _recorded(asked: Request, case: Case, score: Score, kept: ArtifactRef | None, began: int) -> ScoreRecorded:
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


def _judge(case: Case, artifacts: ArtifactStore, backend: Backend, seed: int, deadline_s: float) -> Score:
    assert case.submission and case.task and case.verifier
    fresh = _Fresh(backend, f"verify:{case.task.task_id}", max(60.0, 2 * deadline_s))
    context = Context(artifacts=artifacts, sandboxes=fresh, open_sandbox=fresh.submitted, seed=seed,
                      deadline_s=deadline_s)
    try:
        return _attempt(case.verifier, case.submission, case.task, context)
    finally:
        fresh.close()


def _attempt(verifier: Verifier, submission: Submission, task: Task, context: Context) -> Score:
    pid = os.getpid()
    try:
        return checked(verifier.verify(submission, task, context))
    except SandboxError as wrong:
        return failed(ScoreStatus.INFRA_FAILURE, "the verifier's sandbox broke", wrong, kind=wrong.kind)
    except (ArtifactError, OSError) as wrong:
        return failed(ScoreStatus.INFRA_FAILURE, "the machine or the artifact store failed", wrong)
    except UnavailableError as wrong:
        return failed(ScoreStatus.INFRA_FAILURE, "a component is missing", wrong, hint=wrong.hint)
    except (Exception, SystemExit) as wrong:
        return failed(ScoreStatus.VERIFIER_ERROR, "the verifier failed", wrong)
    finally:
        if os.getpid() != pid:
            os._exit(0)  # A child that a verifier forked and let go on: the verdict is its parent's.


def _keep(score: Score, asked: Request, case: Case, isolated: bool | None,
          artifacts: ArtifactStore) -> tuple[Score, ArtifactRef | None]:
    """Store the evidence. No evidence, no reward."""
    try:
        text = _document(score, asked, case, isolated)
    except Exception as wrong:
        score = failed(ScoreStatus.VERIFIER_ERROR, "the verifier's evidence cannot be written", wrong)
        text = _document(score, asked, case, isolated)
    try:
        return score, artifacts.put(text, evidence.MEDIA_TYPE)
    except (ArtifactError, OSError) as wrong:
        log.error("evidence cannot be stored: %s", wrong)
        return Score(status=ScoreStatus.INFRA_FAILURE), None


def _document(score: Score, asked: Request, case: Case, isolated: bool | None) -> bytes:
    return evidence.encode({
        "submission": asked.submission, "task_id": case.task.task_id if case.task else None,
        "task_digest": case.submission.task_digest if case.submission else None, "verifier": case.name,
        "verifier_digest": case.version, "isolated": isolated, "seed": asked.seed,
        "status": score.status.value, "reward": score.reward, "components": dict(score.components),
        "details": dict(score.evidence)})
