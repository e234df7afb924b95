"""`headrace tasks check`: what cannot be trained on is quarantined with its reason, and is not requested any more."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from artifacts import open_store
from eventlog import open_log
from headrace.cli import main
from producers.request import register_tasks
from replay.admission import Verdict, rule
from sandboxes import probe
from schemas.settings import Settings
from tasks.coding import coding_tasks
from tests.conftest import require_real

VERIFIERS = '''
import pathlib
from verifiers.verifier import Score

class Generous:
    name = "generous"
    def verify(self, submission, task, context):
        return Score(reward=1.0)

class Coin:
    """Heads for every second solution that it sees."""
    name = "coin"
    def verify(self, submission, task, context):
        if not submission.calls[:-1]:
            return Score(reward=0.0)
        tossed = pathlib.Path(__file__).with_suffix(".tossed")
        with tossed.open("a") as file:
            file.write("x")
        return Score(reward=float(len(tossed.read_text()) % 2))

class Broken:
    name = "broken"
    def verify(self, submission, task, context):
        raise RuntimeError("no idea")
'''
OK, INFRA = Verdict("ok", 1.0), Verdict("infra_failure", None)


@pytest.mark.parametrize(("references", "empty", "finding"), [
    ([OK, OK, OK], Verdict("ok", 0.0), "sound"),
    ([Verdict("ok", 0.9)] * 3, Verdict("ok", 0.0), "unsolvable"),
    ([OK, Verdict("ok", 0.9), OK], Verdict("ok", 0.0), "flaky"),
    ([OK, Verdict("verifier_error", None), OK], Verdict("ok", 0.0), "flaky"),
    ([Verdict("verifier_error", None)] * 3, Verdict("ok", 0.0), "no_verdict"),
    ([OK, OK, OK], Verdict("ok", 0.1), "hackable"), ([OK, OK, OK], Verdict("verifier_error", None), "no_verdict"),
    ([OK, INFRA, OK], Verdict("ok", 0.0), "unchecked"), ([OK, OK], INFRA, "unchecked"),
    ([OK, OK], Verdict(None, None, "infra_failure"), "unchecked"), ([], Verdict("ok", 0.0), "unchecked")])
def test_a_ruling_follows_from_the_verdicts(references: list[Verdict], empty: Verdict, finding: str) -> None:
    ruling = rule("t", references, empty)
    assert ruling.finding == finding and bool(ruling.reason) == (finding != "sound")


def test_what_cannot_be_trained_on_is_quarantined(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if why := probe("bubblewrap"):
        require_real("bubblewrap", why)
    home, verifiers = str(tmp_path / "home"), tmp_path / "mine.py"
    verifiers.write_text(VERIFIERS)
    sound = msgspec.structs.replace(coding_tasks()[0], set="planted")
    planted = [
        sound,
        msgspec.structs.replace(sound, task_id="wrong", reference=sound.variants["wrong"]),
        msgspec.structs.replace(sound, task_id="unsolved", reference=[]),
        *(msgspec.structs.replace(sound, task_id=name, verifier=name) for name in ("generous", "coin", "broken"))]
    settings = Settings(home=home)
    Path(home).mkdir()
    log = open_log(settings)
    register_tasks(log, open_store(settings), planted)
    log.close()

    command = ["tasks", "check", "planted", "--home", home, "--verifier", str(verifiers), "-o", "json"]
    assert main(command) == 1
    found = {row["task_id"]: row["finding"] for row in json.loads(capsys.readouterr().out)}
    assert found == {sound.task_id: "sound", "wrong": "unsolvable", "unsolved": "unchecked", "generous": "hackable",
                     "coin": "flaky", "broken": "no_verdict"}
    main(["tasks", "ls", "--home", home, "-o", "json"])
    reasons = {row["task_id"]: row["reason"] for row in json.loads(capsys.readouterr().out) if row["quarantined"]}
    assert {task_id: reason.split(":")[0] for task_id, reason in reasons.items()} == {
        "wrong": "unsolvable", "generous": "hackable", "coin": "flaky", "broken": "no_verdict"}

    main(["request", "--tasks", "planted", "--policy", "scripted:empty", "--home", home])
    told = capsys.readouterr()
    assert "requested 2 episodes" in told.out and "4 quarantined" in told.err

    verifiers.write_text(VERIFIERS.replace('raise RuntimeError("no idea")',
                                           "return Score(reward=float(bool(submission.calls[:-1])))"))
    assert main(command[:-2]) == 1
    assert "1 released" in capsys.readouterr().out
