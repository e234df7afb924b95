"""Repositories at the size and with the histories that SWE-style rows have."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from sandboxes.sandbox import ExecResult
from schemas.enums import ScoreStatus
from tasks.importers import load_tasks
from tasks.task import Task
from tests.verifiers.rig import Rig
from verifiers.repository_report import read_report
from verifiers.scoring import LIMITS

MANY = 3000
_LONG = "a rather long name that says what it is about, as names of rows tend to do "


def test_three_thousand_expected_tests_are_counted_one_by_one(rig: Rig) -> None:
    rows = ", ".join(f"({number}, {number * 7}, {_LONG + str(number)!r})" for number in range(MANY))
    tests = (f"import pytest\nfrom core import f\n\n\n@pytest.mark.parametrize('n, want, about', [{rows}])\n"
             "def test_f(n, want, about):\n    assert f(n) == want\n")
    names = [f"tests/test_core.py::test_f[{number}-{number * 7}-{_LONG}{number}]" for number in range(MANY)]
    asked = Task(task_id="many", kind="coding", set="s", prompt="p", files={"core.py": b"def f(n):\n    return n\n"},
                 hidden={"repository": {"files": {"tests/test_core.py": tests.encode()}, "reward": "rate",
                                        "fail_to_pass": names[1:], "pass_to_pass": names[:1], "deadline_s": 100.0}})
    source = f"def f(n):\n    assert n != {MANY - 1}, 'x' * 10_000\n    return n * 7\n"
    score = rig.score(rig.hand_in(asked, {"core.py": source}), deadline_s=120.0)
    details = rig.evidence(score)["details"]
    assert (score.status, score.reward) == (ScoreStatus.OK, (MANY - 1) / MANY), details
    assert (details["passed"], details["expected"], details["output_limit"]) == (MANY - 1, MANY, False)
    assert details["outcomes"][names[-1]] == "failed" and list(details["failures"]) == [names[-1]]


def test_a_report_in_which_all_of_them_fail_fits_into_what_a_sandbox_may_write() -> None:
    secret = 32 * "f"
    lines: list[dict[str, object]] = [
        {"test": f"tests/unit/test_core.py::test_f[{_LONG}{number}]", "outcome": "failed"}
        for number in range(2 * MANY)]
    lines += [{"failure": line["test"], "why": 400 * "x"} for line in lines[:100]]
    lines += [{"at": number, "test": line["test"], "value": 100 * "x"} for number, line in enumerate(lines[:MANY])]
    said = b"".join(json.dumps({**line, "secret": secret}).encode() + b"\n" for line in lines)
    assert len(said) < LIMITS.output_kb * 1024
    assert len(read_report(ExecResult(exit_code=0, stdout=said), secret).tests) == 2 * MANY


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=e@example.org", *words], cwd=folder,
                          check=True, capture_output=True, text=True).stdout.strip()


def commit(work: Path, text: str) -> str:
    (work / "core.py").write_text(f"# {text}\ndef f(n):\n    return n\n")
    git(work, "add", ".")
    git(work, "commit", "-qm", text)
    return git(work, "rev-parse", "HEAD")


def test_no_kind_of_history_enters_a_task(tmp_path: Path) -> None:
    """Later commits in packed refs, reflog, stash, notes, alternates, tags, another worktree, unreachable objects."""
    work = tmp_path / "own__core"
    (work / "tests").mkdir(parents=True)
    (work / "tests" / "test_core.py").write_text("from core import f\n\n\ndef test_f():\n    assert f(1) == 7\n")
    git(work, "init", "-q", "-b", "main")
    base = commit(work, "old")
    later = commit(work, "SECRET of a commit")
    git(work, "tag", "-am", "SECRET of a tag", "v2")
    git(work, "notes", "add", "-m", "SECRET of a note")
    git(work, "branch", "later")
    git(work, "pack-refs", "--all")
    git(work, "reset", "-q", "--hard", base)
    (work / "core.py").write_text("# SECRET of a stash\n")
    git(work, "stash", "-q")
    git(work, "worktree", "add", "-q", str(tmp_path / "beside"), "later")
    git(work, "gc", "-q")
    borrowed = tmp_path / "own__borrowed"
    git(tmp_path, "clone", "-q", "--shared", str(work), str(borrowed))
    row = {"base_commit": base, "patch": "", "FAIL_TO_PASS": ["tests/test_core.py::test_f"], "test_patch": (
        "diff --git a/n.txt b/n.txt\nnew file mode 100644\n--- /dev/null\n+++ b/n.txt\n@@ -0,0 +1 @@\n+n\n"),
        "problem_statement": "f is seven times n"}
    row["patch"] = ("diff --git a/core.py b/core.py\n--- a/core.py\n+++ b/core.py\n@@ -1,3 +1,3 @@\n # old\n"
                    " def f(n):\n-    return n\n+    return n * 7\n")
    for repo in ("own/core", "own/borrowed"):
        path = tmp_path / "rows.jsonl"
        path.write_text(json.dumps({**row, "instance_id": "x", "repo": repo}) + "\n")
        task, = load_tasks("swe", path)
        assert set(task.files) == {"core.py", "tests/test_core.py"}
        assert not any(b"SECRET" in data or later.encode() in data for data in task.files.values())


@pytest.mark.parametrize("history", [
    [".git/packed-refs"], [".git/logs/HEAD"], [".git/objects/info/alternates"], [".git/refs/stash"], [".git"],
    ["module/.git"], ["HEAD", "objects/pack/pack-1.pack", "refs/heads/main"]])
def test_a_seed_with_history_is_a_verifier_error(rig: Rig, history: list[str]) -> None:
    asked = Task(task_id="x", kind="coding", set="s", prompt="p", files=dict.fromkeys(history, b"x"), hidden={
        "repository": {"files": {"tests/test_core.py": b"def test_f():\n    pass\n"},
                       "fail_to_pass": ["tests/test_core.py::test_f"]}})
    score = rig.score(rig.hand_in(asked))
    assert (score.status, score.reward) == (ScoreStatus.VERIFIER_ERROR, None)
    assert "history" in rig.evidence(score)["details"]["message"]
