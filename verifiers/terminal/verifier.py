"""The verifier of kind `terminal`: the state that an episode left, by probes (`state`) or by a test script (`tests`);
with both, the reward is the product. See verifiers.terminal.hidden, .probes and .script.

The submission's workspace is all there is: what an episode wrote elsewhere, and every process of it, is gone.
"""

from __future__ import annotations

from schemas.enums import ScoreStatus
from tasks.task import Submission, Task
from verifiers.digest import code_digest
from verifiers.killable import versions
from verifiers.terminal import probes
from verifiers.terminal.hidden import hidden_of
from verifiers.terminal.libraries import KNOWN
from verifiers.terminal.script import run_script
from verifiers.verifier import Context, Score

MODULES = ("verifiers.terminal", *(f"verifiers.terminal.{name}" for name in (
    "headrace_ctrf", "hidden", "inside", "libraries", "probes", "reward", "script", "shim", "verifier")),
    "verifiers.killable", "verifiers.program")


class TerminalVerifier:
    name = "terminal"

    @property
    def digest(self) -> str:
        return code_digest(MODULES, versions("pytest", *KNOWN.values()))

    def verify(self, submission: Submission, task: Task, context: Context) -> Score:
        hidden = hidden_of(task)
        components: dict[str, float] = {}
        evidence: dict[str, object] = {"image": "the host's /usr, read-only"}
        reward = 1.0
        if hidden.probes:
            verdicts = probes.check(hidden.probes, context.open_sandbox(submission, task), hidden.workdir)
            reward = components["state"] = probes.share(hidden.probes, verdicts, hidden.reward)
            evidence["probes"] = verdicts
        if hidden.script:
            tested = run_script(hidden, hidden.script, submission, task, context)
            evidence |= tested.evidence
            if tested.reward is None:
                return Score(status=ScoreStatus.VERIFIER_ERROR, evidence=evidence)
            reward *= tested.reward
            components |= tested.components
        return Score(reward=reward, components=components, evidence=evidence)
