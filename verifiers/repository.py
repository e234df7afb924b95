"""Verdicts on a changed repository, as in SWE-style rows: expected tests by their exact ids.

The tests come from the task and lie read-only outside the workspace, whose own tests, conftest and configuration are
not looked at; pytest is the one installed beside us, mounted read-only. What counts is a passed report for each
expected id, and at every sealed place of it the value that was wanted, compared here (`repository_seal`): missing,
skipped or in error is not passed, an expected failure is. See `repository_runner` for what else a forger meets. Tests
of the submission's own package that import it by relative names are not supported.

`task.hidden["repository"]`: `files` (tests, their data and conftests by path), `fail_to_pass`, `pass_to_pass`, `paths`
(folders to import from), `reward` (`all`: resolved or not; `rate`: the share of expected ids), `deadline_s`.
A test run that hangs, or takes the machine's processes or memory, is the submission's failure: what it did not reach
in time has not passed.
"""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from sandboxes.sandbox import ExecResult, Sandbox
from schemas.errors import SandboxError, VerifierError
from schemas.ids import digest
from tasks.task import Submission, Task
from verifiers import repository_review
from verifiers.findings import SCALE
from verifiers.program import ENVIRONMENT, command
from verifiers.repository_files import LIBRARIES, TESTS, lay_out, libraries
from verifiers.repository_report import CANARY, Report, read_report
from verifiers.repository_sealed import Outcomes, SealedTests
from verifiers.verifier import Context, Score

RUNNER = ("verifiers.values", "verifiers.repository_values", "verifiers.repository_watch",
          "verifiers.repository_runner")
HOST = ("verifiers.repository_files", "verifiers.repository_literals", "verifiers.repository_places",
        "verifiers.repository_report", "verifiers.repository_review", "verifiers.repository_seal",
        "verifiers.repository_sealed", "verifiers.repository_source", "verifiers.repository_table")
SHOWN = 1500
"""Of outcomes in the evidence, those that have not passed first."""
_GRACE_S = 4.0
_STEPS = {"gc.get_objects": b"get_objects", "gc.get_referrers": b"get_referrers", "gc.get_referents": b"get_referents",
          "ctypes.cdata": b"ctypes", "ctypes.PyObj_FromPtr": b"ctypes", "ctypes.string_at": b"ctypes",
          "sys.settrace": b"settrace", "sys.setprofile": b"setprofile", "sys._current_frames": b"_current_frames",
          "code.__new__": b"code", "/proc": b"/proc"}
_ANY = b"ANY"


class RepositoryHidden(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    files: dict[str, bytes]
    fail_to_pass: list[str]
    pass_to_pass: list[str] = []
    paths: tuple[str, ...] = (".",)
    reward: str = "all"
    deadline_s: float = 60.0


class _Runs(NamedTuple):
    """Of the tests, and of those that needed a line-up once more."""

    tests: SealedTests
    first: ExecResult
    outcomes: Outcomes
    report: Report


def verify(submission: Submission, task: Task, context: Context) -> Score:
    """Components `fail_to_pass`, `pass_to_pass` (shares), `resolved`, `compiles`, `static`, `tampering`, and `sealed`:
    the share of `fail_to_pass` that passed by values which the submission could neither see nor guess."""
    end = time.monotonic() + context.deadline_s - _GRACE_S
    hidden = hidden_of(task)
    secret = digest(repr((submission.workspace, sorted(hidden.files.items()))).encode())[-32:]
    tests = SealedTests(hidden.files, _expected(hidden), secret)
    with tempfile.TemporaryDirectory(prefix="headrace-tests-") as folder:
        canary = f"test_{secret[:8]}.py"
        sandbox = context.open_sandbox(submission, task, {
            TESTS: lay_out(Path(folder), {**tests.files, canary: CANARY.encode()}), **libraries()})
        review = repository_review.review(sandbox, task, hidden.files, end - time.monotonic())
        end = min(end, time.monotonic() + hidden.deadline_s)
        runs = _run_all(sandbox, tests, _request(hidden, task, secret, canary), end)
    return _score(hidden, runs, review)


def hidden_of(task: Task) -> RepositoryHidden:
    """Raises VerifierError: a task that cannot be judged is no zero."""
    where = f"task {task.task_id}"
    try:
        hidden = msgspec.convert(task.hidden["repository"], RepositoryHidden)
    except msgspec.ValidationError as wrong:
        raise VerifierError(f"the task's hidden part is wrong: {wrong}", where=where) from None
    if not hidden.fail_to_pass or hidden.reward not in ("all", "rate"):
        raise VerifierError("a repository task needs tests in fail_to_pass, and reward `all` or `rate`", where=where)
    for name in _expected(hidden):
        if name.partition("::")[0] not in hidden.files:
            raise VerifierError("an expected test is in no test file of the task", where=where, value=name)
    history = repository_review.history_of(task.files)
    if history is not None:
        raise VerifierError("the seed of a repository task has history, where the solution may be", where=where,
                            value=history, hint="import the task from a bundle: its history stays behind")
    return hidden


def _expected(hidden: RepositoryHidden) -> list[str]:
    return [*hidden.fail_to_pass, *hidden.pass_to_pass]


def _request(hidden: RepositoryHidden, task: Task, secret: str, canary: str) -> dict[str, Any]:
    sources = [*task.files.values(), *hidden.files.values()]
    files = sorted({name.partition("::")[0] for name in _expected(hidden)})
    return {
        "secret": secret, "libraries": LIBRARIES, "canary": f"{TESTS}/{canary}",
        "files": [f"{TESTS}/{name}" for name in files], "paths": [f"/workspace/{path}" for path in hidden.paths],
        "any": any(_ANY in data for data in hidden.files.values()),
        "usual": [step for step, word in _STEPS.items() if any(word in data for data in sources)],
        "arguments": ["-q", "-p", "no:cacheprovider", "-c", f"{TESTS}/headrace.ini", f"--rootdir={TESTS}",
                      f"--confcutdir={TESTS}", "--continue-on-collection-errors", "--tb=short"]}


def _run_all(sandbox: Sandbox, tests: SealedTests, request: dict[str, Any], end: float) -> _Runs:
    ran = _run(sandbox, {**request, **tests.request()}, end)
    if not ran.stdout:
        raise SandboxError("the tests could not be started", value=ran.stderr[-120:].decode(errors="replace"),
                           kind="oom" if ran.oom else "probe")
    report = read_report(ran, request["secret"])
    outcomes = tests.judge(report)
    report.tampering |= outcomes.tampering
    if outcomes.unsure and not report.tampering and time.monotonic() < end:
        shown = tests.line_ups(outcomes.unsure)
        files = sorted({inside.partition("::")[0] for inside in shown})
        again = read_report(_run(sandbox, {**request, "files": [f"{TESTS}/{name}" for name in files],
                                           **tests.request(shown)}, end), request["secret"])
        second = tests.judge(again, shown)
        report.tampering |= again.tampering | second.tampering
        outcomes = outcomes._replace(tests={**outcomes.tests, **_unsure(tests, outcomes), **second.tests},
                                     failures={**outcomes.failures, **second.failures},
                                     hard=outcomes.hard | second.hard)
        outcomes.tests.update(_unsure(tests, second))
    else:
        outcomes.tests.update(_unsure(tests, outcomes))
    return _Runs(tests, ran, outcomes, report)


def _unsure(tests: SealedTests, outcomes: Outcomes) -> dict[str, str]:
    return dict.fromkeys(tests.names(outcomes.unsure), "failed")


def _run(sandbox: Sandbox, request: dict[str, Any], end: float) -> ExecResult:
    environment = {**ENVIRONMENT, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "HOME": "/tmp"}
    return sandbox.exec(command(*RUNNER), stdin=json.dumps(request).encode(), environment=environment,
                        deadline_s=max(1.0, end - time.monotonic()))


def _score(hidden: RepositoryHidden, runs: _Runs, review: repository_review.Review) -> Score:
    found, expected = runs.outcomes, _expected(hidden)
    if not found.tests and not any(_is_named(hidden, name) for name in expected):
        raise VerifierError("none of the expected tests is in the task's test files", where="repository",
                            value=expected[:5])
    trusted = found.tests if not runs.report.tampering else {}
    shares = {"fail_to_pass": _share(hidden.fail_to_pass, trusted),
              "pass_to_pass": _share(hidden.pass_to_pass, trusted)}
    resolved = all(share == 1.0 for share in shares.values())
    hard = [name for name in hidden.fail_to_pass if trusted.get(name) == "passed" and name in found.hard]
    told = [*sorted(runs.report.tampering), *review.tampering]
    outcomes = {name: found.tests.get(name, "missing") for name in expected}
    return Score(
        reward=float(resolved) if hidden.reward == "all" else _share(expected, trusted), components={
            **shares, "resolved": float(resolved), "compiles": float(not review.broken and review.error is None),
            "static": math.exp(-len(review.new) / SCALE) if review.error is None else 0.0,
            "tampering": float(bool(told)), "sealed": len(hard) / len(hidden.fail_to_pass)}, evidence={
            "passed": sum(outcome == "passed" for outcome in outcomes.values()), "expected": len(expected),
            "outcomes": dict(sorted(outcomes.items(), key=lambda one: one[1] == "passed")[:SHOWN]),
            "failures": found.failures, "collection": runs.report.broken, "tampering": told,
            "timed_out": runs.first.timed_out, "oom": runs.first.oom, "output_limit": runs.first.truncated,
            "unsealed": [name for name in hidden.fail_to_pass if name not in found.hard][:SHOWN],
            "source": review.evidence()})


def _is_named(hidden: RepositoryHidden, name: str) -> bool:
    """Whether the test file speaks of the test at all: what the submission does has no part in it."""
    path, _, rest = name.partition("::")
    return rest.partition("[")[0].rpartition("::")[2].encode() in hidden.files[path]


def _share(names: list[str], outcomes: Mapping[str, str]) -> float:
    return sum(outcomes.get(name) == "passed" for name in names) / len(names) if names else 1.0
