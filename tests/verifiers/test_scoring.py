"""The one function that scores: never raises, never books a failure of ours as a reward, same evidence every time."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from artifacts.store import DirectoryStore
from sandboxes.sandbox import Sandbox, SandboxSpec
from schemas.enums import ScoreStatus
from schemas.errors import ArtifactError, NotFoundError, SandboxError, UnavailableError
from schemas.events import ArtifactRef
from tasks.task import Submission, Task, store_submission
from tests.conftest import REPOSITORY
from tests.verifiers.rig import Rig
from verifiers import digest, files, registry
from verifiers.scoring import score_id_of
from verifiers.verifier import Context, Score

TASK = Task(task_id="t", kind="documents", set="s", prompt="p", files={"in.txt": b"seven"},
            hidden={"fields": {"a": {"type": "number", "want": "7"}}})
CUSTOM = msgspec.structs.replace(TASK, verifier="custom")


class Custom:
    """A verifier whose verdict the test writes."""

    name = "custom"
    digest = "sha256:" + "0" * 64
    result: Any = None

    def verify(self, submission: Submission, task: Task, context: Context) -> Score:
        made: Score = self.result(submission, task, context) if callable(self.result) else self.result
        return made


@pytest.fixture
def custom(monkeypatch: pytest.MonkeyPatch) -> Iterator[Custom]:
    """Registered under its name, as an entry point would be."""
    made = Custom()
    monkeypatch.setitem(registry.BUILTIN, "custom", f"{__name__}:held")
    monkeypatch.setitem(globals(), "held", lambda: made)
    registry.get_verifier.cache_clear()
    yield made
    registry.get_verifier.cache_clear()


def raising(wrong: Exception) -> Any:
    def verify(*_: object) -> Score:
        raise wrong

    return verify


def test_the_same_submission_gives_the_same_evidence_bytes_and_score_id(rig: Rig) -> None:
    submission = rig.hand_in(TASK, answer='{"a": 7}')
    first, second = rig.score(submission), rig.score(submission)
    assert first.reward == 1.0 and first.evidence == second.evidence and first.score_id == second.score_id
    assert first.verifier == "documents" and first.verifier_digest == registry.get_verifier("documents").digest
    assert (first.task_id, first.run_id, first.cause) == ("t", "run", "live")
    assert (rig.evidence(first)["reward"], rig.evidence(first)["submission"]) == (1.0, submission)


def test_two_episodes_with_one_submission_have_two_scores() -> None:
    ids = {score_id_of(episode, "sha256:1", "sha256:2", cause) for episode in "ab" for cause in ("live", "replay-1")}
    assert len(ids) == 4 and score_id_of("a", "sha256:1", "sha256:2", "live") in ids


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf, True, False, -0.01, 1.0000001, "1", 2])
def test_a_reward_that_is_no_number_in_range_is_a_verifier_error(rig: Rig, custom: Custom, reward: Any) -> None:
    custom.result = Score(reward=reward)
    score = rig.score(rig.hand_in(CUSTOM))
    assert (score.status, score.reward, score.components) == (ScoreStatus.VERIFIER_ERROR, None, {})
    assert "reward" in rig.evidence(score)["details"]["what"]


@pytest.mark.parametrize("result", [
    Score(reward=1.0, components={"x": math.nan}), Score(reward=1.0, components={"x": True}), Score(reward=None), None,
    1.0, Score(status=ScoreStatus.INFRA_FAILURE, reward=0.5)])
def test_a_broken_score_is_a_verifier_error(rig: Rig, custom: Custom, result: Any) -> None:
    custom.result = result
    score = rig.score(rig.hand_in(CUSTOM))
    assert (score.status, score.reward) == (ScoreStatus.VERIFIER_ERROR, None)
    assert score.evidence is not None


@pytest.mark.parametrize(("wrong", "status"), [
    (ZeroDivisionError("x"), ScoreStatus.VERIFIER_ERROR), (RecursionError("deep"), ScoreStatus.VERIFIER_ERROR),
    (SandboxError("gone", kind="oom"), ScoreStatus.INFRA_FAILURE), (ArtifactError("full"), ScoreStatus.INFRA_FAILURE),
    (OSError(28, "no space"), ScoreStatus.INFRA_FAILURE),
    (UnavailableError("no mesh library", hint="install it"), ScoreStatus.INFRA_FAILURE)])
def test_what_a_verifier_raises_is_a_status_with_its_traceback(rig: Rig, custom: Custom, wrong: Exception,
                                                               status: ScoreStatus) -> None:
    custom.result = raising(wrong)
    score = rig.score(rig.hand_in(CUSTOM))
    assert (score.status, score.reward) == (status, None)
    details = rig.evidence(score)["details"]
    assert details["error"] == type(wrong).__name__ and str(wrong) in details["message"]
    assert details["traceback"][-1].startswith("test_scoring.py:")


def test_sandboxes_hold_the_submission_alone_and_are_closed_afterwards(rig: Rig, custom: Custom) -> None:
    opened: list[Sandbox] = []
    seen: list[bytes] = []

    def verify(submission: Submission, task: Task, context: Context) -> Score:
        fresh = [context.open_sandbox(submission, task), context.sandboxes.acquire(SandboxSpec())]
        seen.extend(sandbox.exec(["sh", "-c", "cat * 2>&1"]).stdout for sandbox in fresh)
        opened.extend(fresh)
        return Score(reward=1.0)

    custom.result = verify
    rig.score(rig.hand_in(CUSTOM))
    rig.score(rig.hand_in(CUSTOM, {"out.txt": "made "}))
    assert seen[0] == b"seven" and seen[2] == b"sevenmade " and b"No such file" in seen[1]
    for sandbox in opened:
        with pytest.raises((SandboxError, OSError)):
            sandbox.exec(["true"])


def test_missing_and_unreadable_inputs_are_statuses(rig: Rig) -> None:
    missing = rig.score("sha256:" + "1" * 64)
    assert (missing.status, missing.reward, missing.verifier) == (ScoreStatus.INFRA_FAILURE, None, "")
    assert rig.evidence(missing)["details"]["what"] == "the submission is not in the store"
    garbage = rig.score(rig.artifacts.put(b"\xc1 not msgpack").digest)
    assert (garbage.status, garbage.reward) == (ScoreStatus.VERIFIER_ERROR, None)
    orphan = store_submission(Submission(task_id="t", task_digest="sha256:" + "2" * 64, workspace=None, answer=None),
                              rig.artifacts)
    assert rig.evidence(rig.score(orphan.digest))["details"]["what"] == "the task is not in the store"
    unknown = rig.score(rig.hand_in(msgspec.structs.replace(TASK, verifier="documentz")))
    assert unknown.status == ScoreStatus.VERIFIER_ERROR
    assert rig.evidence(unknown)["details"]["what"] == "no such verifier"


def test_a_workspace_that_is_not_in_the_store_is_no_zero(rig: Rig) -> None:
    task = Task(task_id="t", kind="tools", set="s", prompt="p", hidden={"family": "calc", "out": "o", "want": "1"})
    lost = msgspec.structs.replace(
        msgspec.msgpack.decode(rig.artifacts.get(rig.hand_in(task)), type=Submission), workspace="sha256:" + "3" * 64)
    score = rig.score(store_submission(lost, rig.artifacts).digest)
    assert (score.status, score.reward) == (ScoreStatus.INFRA_FAILURE, None)


def test_a_broken_task_is_the_verifiers_error(rig: Rig) -> None:
    for kind in ("coding", "documents", "scene", "tools"):
        score = rig.score(rig.hand_in(Task(task_id="t", kind=kind, set="s", prompt="p", hidden={"family": "calc"})))
        assert (score.status, score.reward) == (ScoreStatus.VERIFIER_ERROR, None), kind


def test_no_evidence_no_reward(rig: Rig, custom: Custom, monkeypatch: pytest.MonkeyPatch) -> None:
    custom.result = Score(reward=1.0)
    submission = rig.hand_in(CUSTOM)

    def full(self: DirectoryStore, data: bytes, media_type: str = "") -> ArtifactRef:
        raise ArtifactError("no space")

    monkeypatch.setattr(DirectoryStore, "put", full)
    score = rig.score(submission)
    assert (score.status, score.reward, score.evidence) == (ScoreStatus.INFRA_FAILURE, None, None)


def test_a_digest_changes_with_code_and_with_configuration() -> None:
    one = digest.code_digest(["verifiers.tools"])
    assert one == digest.code_digest(["verifiers.tools"])
    assert one != digest.code_digest(["verifiers.tools", "verifiers.scene.mesh"])
    assert one != digest.code_digest(["verifiers.tools"], {"share": 0.2})
    assert len({registry.get_verifier(name).digest for name in registry.BUILTIN}) == len(registry.BUILTIN)


def test_every_module_that_decides_is_in_its_verifiers_digest() -> None:
    """A verifier's digest covers each module that its own modules import, wherever they do, but for what says how
    verifiers are called and what becomes of what they return."""
    apart = {"tasks.task", "verifiers.digest", "verifiers.evidence", "verifiers.registry", "verifiers.verifier"}
    for name, place in registry.BUILTIN.items():
        module = importlib.import_module(place.partition(":")[0])
        named = {part for source in module.MODULES for part in files.imported(digest.source_of(source))
                 if part.startswith(("verifiers.", "tasks."))
                 and (REPOSITORY / (part.replace(".", "/") + ".py")).exists()}
        assert named - apart <= set(module.MODULES), name


def test_an_unknown_name_gets_a_suggestion() -> None:
    with pytest.raises(NotFoundError) as caught:
        registry.get_verifier("codng")
    assert "coding" in caught.value.hint
