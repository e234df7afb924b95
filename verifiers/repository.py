"""Verdicts on a changed repository, as in SWE-style rows: expected tests by their exact ids.

The tests come from the task and lie read-only outside the workspace, whose own tests, conftest and configuration are
not looked at; pytest is the one installed beside us, mounted read-only. What counts is a passed report for each
expected id: missing, skipped or in error is not passed, an expected failure is. See `repository_runner` for what a
forger meets. Tests of the submission's own package that import it by relative names are not supported.

`task.hidden["repository"]`: `files` (tests, their data and conftests by path), `fail_to_pass`, `pass_to_pass`, `paths`
(folders to import from), `reward` (`all`: resolved or not; `rate`: the share of expected ids), `deadline_s`.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import math
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from sandboxes.sandbox import ExecResult, Sandbox
from schemas.errors import SandboxError, UnavailableError, VerifierError
from schemas.ids import digest
from tasks.task import Submission, Task
from verifiers.program import ENVIRONMENT, command
from verifiers.verifier import Context, Score

RUNNER = ("verifiers.repository_runner",)
LOOK = ("verifiers.values", "verifiers.candidate_runner", "verifiers.repository_look")
TESTS, LIBRARIES = "/opt/headrace-tests", "/opt/headrace-libraries"
_PYTEST = ("pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "pygments")
_CANARY = """import unittest


def test_fails():
    assert 1 == 2


def test_raises():
    raise ValueError


class Test(unittest.TestCase):
    def test_fails(self):
        self.assertEqual(1, 2)


def test_passes():
    assert 1 == 1
"""
_CANARY_OUTCOMES = {"test_fails": "failed", "test_raises": "failed", "Test::test_fails": "failed",
                    "test_passes": "passed"}
STATIC_SCALE = 10.0
_GRACE_S = 3.0


class RepositoryHidden(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    files: dict[str, bytes]
    fail_to_pass: list[str]
    pass_to_pass: list[str] = []
    paths: tuple[str, ...] = (".",)
    reward: str = "all"
    deadline_s: float = 60.0


class Outcomes(NamedTuple):
    tests: dict[str, str]
    failures: dict[str, str]
    broken: list[str]
    tampering: list[str]
    ended: bool


def verify(submission: Submission, task: Task, context: Context) -> Score:
    """Components `fail_to_pass`, `pass_to_pass` (shares), `resolved`, `compiles`, `static`, `tampering`."""
    hidden = hidden_of(task)
    secret = digest(repr((submission.workspace, sorted(hidden.files.items()))).encode())[-32:]
    with tempfile.TemporaryDirectory(prefix="headrace-tests-") as folder:
        canary = f"test_{secret[:8]}.py"
        sandbox = context.open_sandbox(submission, task, {
            TESTS: lay_out(Path(folder), {**hidden.files, canary: _CANARY.encode()}), **libraries()})
        look = _look(sandbox, task, hidden)
        ran = _run(sandbox, hidden, secret, canary, min(hidden.deadline_s, context.deadline_s - _GRACE_S))
    if not ran.stdout:
        raise SandboxError("the tests could not be started", value=ran.stderr[-120:].decode(errors="replace"),
                           kind="oom" if ran.oom else "probe")
    return _score(hidden, read_outcomes(ran, secret, frozenset(_expected(hidden))), look, ran)


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
    history = next((path for path in task.files if ".git" in Path(path).parts), None)
    if history is not None:
        raise VerifierError("the seed of a repository task has history, where the solution may be", where=where,
                            value=history, hint="import the task from a bundle: its history stays behind")
    return hidden


def _expected(hidden: RepositoryHidden) -> list[str]:
    return [*hidden.fail_to_pass, *hidden.pass_to_pass]


def lay_out(folder: Path, files: Mapping[str, bytes]) -> Path:
    for name, data in files.items():
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()):
            raise VerifierError("a test file lies outside of its folder", where=name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(0o644)
    (folder / "headrace.ini").write_text("[pytest]\n")
    for made in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
        made.chmod(0o755)
    return folder


def libraries() -> dict[str, Path]:
    found: dict[str, Path] = {}
    for name in _PYTEST:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            raise UnavailableError("tests of repositories need a library that is not installed", value=name,
                                   hint="install headrace with its test libraries")
        path = Path(spec.origin)
        found[f"{LIBRARIES}/{name if path.name == '__init__.py' else path.name}"] = (
            path.parent if path.name == "__init__.py" else path)
    return found


def _look(sandbox: Sandbox, task: Task, hidden: RepositoryHidden) -> dict[str, Any]:
    seed = {name: base64.b64encode(data).decode() for name, data in task.files.items()}
    said = sandbox.exec(command(*LOOK), environment=ENVIRONMENT, deadline_s=30.0,
                        stdin=json.dumps({"seed": seed, "tests": sorted(hidden.files)}).encode())
    if said.exit_code != 0:
        raise SandboxError("looking into a submission failed", value=said.stderr[-400:].decode(errors="replace"),
                           kind="oom" if said.oom else "probe")
    found: dict[str, Any] = json.loads(said.stdout)
    return found


def _run(sandbox: Sandbox, hidden: RepositoryHidden, secret: str, canary: str, limit_s: float) -> ExecResult:
    files = sorted({name.partition("::")[0] for name in _expected(hidden)})
    request = {
        "secret": secret, "expected": _expected(hidden), "libraries": LIBRARIES, "canary": f"{TESTS}/{canary}",
        "files": [f"{TESTS}/{name}" for name in files], "paths": [f"/workspace/{path}" for path in hidden.paths],
        "arguments": ["-q", "-p", "no:cacheprovider", "-c", f"{TESTS}/headrace.ini", f"--rootdir={TESTS}",
                      f"--confcutdir={TESTS}", "--continue-on-collection-errors", "--tb=short"]}
    environment = {**ENVIRONMENT, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "HOME": "/tmp"}
    return sandbox.exec(command(*RUNNER), stdin=json.dumps(request).encode(), environment=environment,
                        deadline_s=max(1.0, limit_s))


def read_outcomes(ran: ExecResult, secret: str, expected: frozenset[str]) -> Outcomes:
    """The records that bear the secret. One test told twice, or anything without it, was not written by us."""
    tests: dict[str, str] = {}
    canaries: dict[str, str] = {}
    failures: dict[str, str] = {}
    broken: list[str] = []
    tampering: set[str] = set()
    ended = False
    for line in ran.stdout.split(b"\n"):
        record = _record(line, secret)
        if record is None:
            if line:
                tampering.add("something else wrote into the report")
        elif "test" in record:
            name = str(record["test"])
            if name in tests or ended:
                tampering.add("a test is reported twice")
            tests[name] = str(record["outcome"])
        elif "canary" in record:
            canaries[str(record["canary"])] = str(record["outcome"])
        elif "failure" in record:
            failures[str(record["failure"])] = str(record["why"])
        elif "broken" in record:
            broken.append(f"{record['broken']}: {record['why']}")
        elif "patched" in record:
            tampering.add(f"the test runner was patched: {record['patched']}")
        elif "agreeable" in record:
            tampering.add(f"a value is equal to everything: {record['agreeable']}")
        elif "end" in record:
            ended = True
    if ended and canaries != _CANARY_OUTCOMES:
        tampering.add("tests that must fail did not, or were not run")
    if not ended and not (ran.timed_out or ran.oom or ran.output_limit):
        tampering.add("the test run was ended from within")
    return Outcomes({name: tests[name] for name in sorted(tests) if name in expected},
                    {name: failures[name] for name in sorted(failures) if name in expected}, broken,
                    sorted(tampering), ended)


def _record(line: bytes, secret: str) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and record.get("secret") == secret else None


def _score(hidden: RepositoryHidden, found: Outcomes, look: Mapping[str, Any], ran: ExecResult) -> Score:
    if not found.tests and not any(_is_named(hidden, name) for name in _expected(hidden)):
        raise VerifierError("none of the expected tests is in the task's test files", where="repository",
                            value=_expected(hidden)[:5])
    trusted = found.tests if not found.tampering else {}
    shares = {"fail_to_pass": _share(hidden.fail_to_pass, trusted),
              "pass_to_pass": _share(hidden.pass_to_pass, trusted)}
    resolved = all(share == 1.0 for share in shares.values())
    reward = float(resolved) if hidden.reward == "all" else _share(_expected(hidden), trusted)
    told = [*found.tampering, *(f"takes test runs over: {name}" for name in look["takers"]),
            *(f"a test file was changed: {name}" for name in look["tests"])]
    new = max(0, look["after"] - look["before"])
    outcomes = {name: found.tests.get(name, "missing") for name in _expected(hidden)}
    return Score(reward=reward, components={
        **shares, "resolved": float(resolved), "compiles": float(not look["broken"]),
        "static": math.exp(-new / STATIC_SCALE), "tampering": float(bool(told))}, evidence={
        "outcomes": outcomes, "failures": found.failures,
        "collection": found.broken, "tampering": told, "timed_out": ran.timed_out, "oom": ran.oom,
        "source": {"broken": look["broken"], "findings": look["findings"], "new_findings": new}})


def _is_named(hidden: RepositoryHidden, name: str) -> bool:
    """Whether the test file speaks of the test at all: what the submission does has no part in it."""
    path, _, rest = name.partition("::")
    return rest.partition("[")[0].rpartition("::")[2].encode() in hidden.files[path]


def _share(names: list[str], outcomes: Mapping[str, str]) -> float:
    return sum(outcomes.get(name) == "passed" for name in names) / len(names) if names else 1.0
