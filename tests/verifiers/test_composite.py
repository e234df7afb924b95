"""Weights and gates over other verifiers' verdicts; a part without a verdict leaves the whole without one."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.enums import ScoreStatus
from tasks.task import Task
from tests.verifiers.rig import Rig
from verifiers.composite import CompositeVerifier
from verifiers.digest import source_of
from verifiers.registry import names

A = {"verifier": "terminal", "hidden": {"probes": [{"file": "a"}]}, "name": "a"}
B = {"verifier": "terminal", "hidden": {"probes": [{"file": "b"}, {"file": "c"}], "reward": "rate"}, "name": "b"}
BROKEN = {"verifier": "terminal", "hidden": {"probes": []}, "name": "broken"}
MATH = {"verifier": "math", "hidden": {"want": "1"}}


def task(*parts: dict[str, Any], **more: Any) -> Task:
    return Task(task_id="c", kind="terminal", set="s", prompt="p", verifier="composite",
                hidden={"parts": list(parts), **more})


@pytest.mark.parametrize(("parts", "files", "reward"), [
    ([{**A, "weight": 0.75}, {**B, "weight": 0.25}], "abc", 1.0),
    ([{**A, "weight": 0.75}, {**B, "weight": 0.25}], "a", 0.75),
    ([{**A, "weight": 0.75}, {**B, "weight": 0.25}], "b", 0.125), ([{**A, "gate": 1}, {**B, "weight": 1}], "bc", 0.0),
    ([{**A, "gate": 1}, {**B, "weight": 1}], "ab", 0.5), ([{**A, "weight": 1}, {**B, "gate": 0.5}], "a", 0.0),
    ([{**A, "weight": 1}, {**B, "gate": 0.5}], "ab", 1.0),
    ([{**A, "weight": 0.1, "name": str(at)} for at in range(10)], "a", 1.0),
    ([{**A, "component": "state", "weight": 1}], "a", 1.0)])
def test_weights_and_gates(rig: Rig, parts: list[dict[str, Any]], files: str, reward: float) -> None:
    score = rig.score(rig.hand_in(task(*parts), dict.fromkeys(files, "x")))
    assert score.status == ScoreStatus.OK and score.reward == pytest.approx(reward), rig.evidence(score)
    assert set(score.components) == {part["name"] for part in parts}


@pytest.mark.parametrize("parts", [
    [{**A, "weight": 0.5}, {**BROKEN, "weight": 0.5}], [{**A, "gate": 1}, {**BROKEN, "weight": 1}],
    [{**A, "weight": 1}, BROKEN], [{**A, "weight": 1, "component": "none"}],
    [{**A, "weight": 1}, {"verifier": "unknown"}]])
def test_a_part_without_a_verdict_leaves_none(rig: Rig, parts: list[dict[str, Any]]) -> None:
    score = rig.score(rig.hand_in(task(*parts)))
    assert (score.status, score.reward) == (ScoreStatus.VERIFIER_ERROR, None)


def test_a_part_that_ran_out_of_luck_is_told(rig: Rig) -> None:
    script = {"verifier": "terminal", "hidden": {"script": {"files": {"test.sh": b"echo nothing"}}}, "name": "tests"}
    score = rig.score(rig.hand_in(task({**A, "weight": 0.5}, {**script, "weight": 0.5})))
    details = rig.evidence(score)["details"]
    assert score.status == ScoreStatus.VERIFIER_ERROR and details["what"] == "tests gave no verdict"
    assert "wrote no reward" in details["tests"]["details"]["what"] and details["a"]["reward"] == 0.0


@pytest.mark.parametrize("parts", [
    [], [{**A, "weight": 0.9}], [{**A, "weight": 0.6}, {**B, "weight": 0.6}], [{**A, "weight": -1}, {**B, "weight": 2}],
    [{**A, "gate": 1}], [{**A, "weight": 0.5}, {**A, "weight": 0.5}], [{"verifier": "composite", "weight": 1}],
    [{"verifier": "judge", "hidden": {"rubric": "r"}, "weight": 1}], [{**A, "weight": float("nan")}],
    [A, {"verifier": "judge", "hidden": {"rubric": "r"}, "weight": 1}], [{**A, "weight": 1, "wait": 1}]])
def test_parts_that_cannot_be_weighed_are_refused(rig: Rig, parts: list[dict[str, Any]]) -> None:
    score = rig.score(rig.hand_in(task(*parts), {"a": "x"}))
    assert (score.status, score.reward) == (ScoreStatus.VERIFIER_ERROR, None)


def test_its_digest_covers_the_verifiers_that_it_may_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    from verifiers import judge_model_policy

    before = CompositeVerifier().digest
    assert {"judge", "terminal", "calls"} <= set(names())
    judge_model_policy.use(judge_model_policy.JudgePolicy("another"))
    try:
        assert CompositeVerifier().digest != before
    finally:
        judge_model_policy.use(None)


def test_every_module_that_decides_is_in_its_verifiers_digest() -> None:
    for name in ("terminal.verifier", "tools_calls", "judge_model"):
        module = __import__(f"verifiers.{name}", fromlist=["MODULES"])
        named = {line.split()[1] for source in module.MODULES for line in source_of(source).decode().splitlines()
                 if line.startswith("from verifiers.")}
        assert named - {"verifiers.digest", "verifiers.verifier"} <= set(module.MODULES), name
