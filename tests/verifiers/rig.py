"""What tests of verdicts need: a store, a real backend, and a way to hand in a workspace as an episode would."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from artifacts import open_store
from sandboxes import open_backend, probe
from sandboxes.sandbox import Limits, SandboxSpec
from sandboxes.wanted import spec_for
from schemas.events import ScoreRecorded
from schemas.settings import Settings
from tasks.task import Submission, SubmittedCall, Task, store_submission, store_task
from tests.conftest import require_real
from verifiers.scoring import Request, judge


class Rig:
    """One home with its store and bubblewrap backend."""

    def __init__(self, home: Path) -> None:
        why = probe("bubblewrap")
        if why is not None:
            require_real("bubblewrap", why)
        self.settings = Settings(home=str(home))
        home.mkdir(parents=True, exist_ok=True)
        self.artifacts = open_store(self.settings)
        self.backend = open_backend(self.settings, self.artifacts)

    def close(self) -> None:
        self.backend.close()

    def hand_in(self, task: Task, files: Mapping[str, bytes | str] | None = None, answer: str | None = None,
                calls: Sequence[tuple[str, str]] = ()) -> str:
        """Digest of the submission: the task's files with `files` written over them; calls as (tool, status)."""
        workspace = None
        if files is not None:
            sandbox = self.backend.acquire(SandboxSpec(files=task.files))
            try:
                for path, content in files.items():
                    sandbox.write(path, content.encode() if isinstance(content, str) else content)
                workspace = sandbox.snapshot()
            finally:
                sandbox.close()
        return self._store(task, workspace, answer, [
            SubmittedCall(turn=turn, tool=tool, arguments="", status=status, output="")
            for turn, (tool, status) in enumerate(calls)])

    def play(self, task: Task, turns: Sequence[str]) -> str:
        """Run a script of the json dialect in a sandbox and hand in what it made."""
        sandbox, answer, calls = self.backend.acquire(spec_for(task, None, limits=Limits(), owner="test")), None, []
        try:
            for number, turn in enumerate(turns):
                call = json.loads(turn)
                arguments = call["arguments"]
                status = "ok"
                if call["tool"] == "write_file":
                    sandbox.write(arguments["path"], arguments["content"].encode())
                elif call["tool"] == "run":
                    result = sandbox.exec(["sh", "-c", arguments["command"]])
                    status = "ok" if result.exit_code == 0 else "error"
                else:
                    answer = arguments["answer"]
                calls.append(SubmittedCall(turn=number, tool=call["tool"], arguments="", status=status, output=""))
            return self._store(task, sandbox.snapshot(), answer, calls)
        finally:
            sandbox.close()

    def _store(self, task: Task, workspace: str | None, answer: str | None, calls: list[SubmittedCall]) -> str:
        registered = store_task(task, self.artifacts)
        return store_submission(Submission(task_id=task.task_id, task_digest=registered.digest, workspace=workspace,
                                           answer=answer, calls=calls), self.artifacts).digest

    def score(self, submission: str, **more: Any) -> ScoreRecorded:
        return judge(Request(submission=submission, episode_id="episode", run_id="run", **more), self.artifacts,
                     self.backend)

    def evidence(self, score: ScoreRecorded) -> dict[str, Any]:
        assert score.evidence is not None
        found: dict[str, Any] = json.loads(self.artifacts.get(score.evidence.digest))
        return found
