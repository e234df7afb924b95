"""Runs the test script of a terminal task in a sandbox that holds the submission's workspace and nothing else.

The tests lie read-only at /tests; rewards go to /logs/verifier, which is made when no process of the episode lives any
more, and are read when none of the tests does. The script's environment is ours: the workspace is not its HOME, not on
its PATH and not where Python looks first, and files of the submission that would take a test run over are set aside.
What a test itself starts of the submission runs beside it, as everywhere in this format.
"""

from __future__ import annotations

import base64
import importlib.util
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from sandboxes.environment import PATH
from sandboxes.sandbox import ExecResult, Sandbox
from schemas.enums import ScoreStatus
from schemas.errors import UnavailableError
from tasks.task import Submission, Task
from verifiers.digest import source_of
from verifiers.terminal import libraries
from verifiers.terminal.hidden import Script, TerminalHidden
from verifiers.terminal.probes import ask
from verifiers.terminal.reward import LIMIT_BYTES, Unreadable, reward_of
from verifiers.verifier import Context, Score

OURS = "/opt/headrace-tests"
LIBRARIES = "/opt/headrace-libraries"
SCRATCH = "/tmp/headrace"
LACKING = "the tests need what this sandbox does not have"
MARKS = ("logs/verifier", "reward.txt", "reward.json")
"""Where rewards go: no solution has a reason to name it, unless its task speaks of it. Also as hex or base64."""
_LOGS = ("verifier", "agent", "artifacts")
_SHIMS = ("apt-get", "apt", "apk", "pip", "pip3", "uv", "uvx", "curl", "wget", "pytest")
_PYTEST = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments")
_TAKERS = ("sitecustomize", "usercustomize", "conftest", "headrace_ctrf", "pip", "argcomplete", "exceptiongroup",
           "tomli", *_PYTEST)
_GRACE_S = 3.0
_SIGNALLED = 128
"""Exit codes above it: the script itself was ended by a signal."""
_PIP = f"""import runpy, sys
def main(*_):
    sys.argv = ["pip", "pip", *sys.argv[1:]]
    runpy.run_path("{OURS}/shim.py", run_name="__main__")
"""
"""The library `pip`, which `python -m pip` and the `pip` of a virtual environment run."""
_TIMES = re.compile(r"\b\d+(\.\d+)?\s?(s|ms|sec|seconds)\b")


def run_script(hidden: TerminalHidden, script: Script, submission: Submission, task: Task, context: Context) -> Score:
    """Component `tests` and one for each named number, or a verifier error with the tests' output."""
    if "aliases" not in context.sandboxes.capabilities:
        raise UnavailableError("test scripts name absolute paths, which this sandbox backend cannot offer",
                               value=context.sandboxes.name, hint="verify with --sandbox bubblewrap")
    wanted = libraries.imported(script.files)
    lacking = [f"library {name}" for name in sorted(wanted) if not task.image and not libraries.is_here(name)]
    if lacking:
        return _error(LACKING, {"missing": lacking, "notes": hidden.notes})
    with tempfile.TemporaryDirectory(prefix="headrace-tests-") as folder:
        lent = {**_libraries(script), **libraries.mounts(wanted | libraries.installed_by(script.files), LIBRARIES)}
        sandbox = context.open_sandbox(submission, task, {**_lay_out(Path(folder), script), **lent})
        takers = _takers(task, {Path(path).name.partition(".")[0] for path in lent})
        moved = ask(sandbox, "prepare", folders=[f"{SCRATCH}/logs/{name}" for name in _LOGS]
                    + [f"{SCRATCH}/home/.local/bin", f"{SCRATCH}/home/.cargo"], files=_files(),
                    aside={hidden.workdir: takers, "/workspace": takers})
        forged = ask(sandbox, "search", folder="/workspace", texts=_marks(task))
        if forged:
            return Score(reward=0.0, components={"tests": 0.0, "tampering": 1.0},
                         evidence={"tampering": "files of the submission name the reward files", "files": forged})
        limit_s = max(1.0, min(script.timeout_s, context.deadline_s - _GRACE_S))
        ran = sandbox.exec([*_shell(script), f"/tests/{script.entry}"], deadline_s=limit_s, cwd=hidden.workdir,
                           environment=_environment(hidden, script, task))
        return _verdict(script, ran, sandbox, limit_s, {"set_aside": moved, "notes": hidden.notes})


def _shell(script: Script) -> list[str]:
    """`bash`, unless the script's first line names what is no shell: it then runs by that."""
    first = script.files[script.entry].split(b"\n", 1)[0]
    return [] if first.startswith(b"#!/") and not re.search(rb"sh\b", first) else ["bash"]


def _verdict(script: Script, ran: ExecResult, sandbox: Sandbox, limit_s: float, evidence: dict[str, Any]) -> Score:
    evidence |= {"exit_code": ran.exit_code, "output": _output(ran)}
    killed = ran.exit_code is None or ran.exit_code > _SIGNALLED
    for flag, what in ((ran.timed_out, f"the tests did not end within {limit_s:g} s"),
                       (ran.output_limit, "the tests wrote without end"),
                       (killed, f"the tests {'ran out of memory' if ran.oom else 'were killed'}")):
        if flag:
            return _error(what, evidence)
    missing = ask(sandbox, "collect", folder=SCRATCH, names=["missing"], limit_bytes=LIMIT_BYTES)
    if missing:
        lacking = base64.b64decode(missing["missing"].get("data", "")).decode(errors="replace").splitlines()
        return _error(LACKING, {**evidence, "missing": lacking})
    numbers: dict[str, float] = {}
    if script.by_exit_code:
        reward = float(ran.exit_code == 0)
    else:
        try:
            reward, numbers = reward_of(ask(sandbox, "collect", folder=f"{SCRATCH}/logs/verifier",
                                            names=["reward.json", "reward.txt"], limit_bytes=LIMIT_BYTES))
        except Unreadable as wrong:
            return _error(str(wrong), evidence)
    components = {"tests": reward, **{f"tests.{name}": number for name, number in numbers.items() if len(numbers) > 1}}
    return Score(reward=reward, components=components, evidence=evidence)


def _error(what: str, evidence: dict[str, Any]) -> Score:
    return Score(status=ScoreStatus.VERIFIER_ERROR, evidence={"what": what, **evidence})


def _output(ran: ExecResult) -> str:
    """Without durations, so that the same verdict has the same evidence."""
    text = (ran.stdout + (b"\n[stderr]\n" + ran.stderr if ran.stderr else b"")).decode(errors="replace")
    return _TIMES.sub("# s", text)


def _lay_out(folder: Path, script: Script) -> dict[str, Path]:
    """Tests, programs of ours and the way to the logs, as folders to mount."""
    tests, ours, logs = folder / "tests", folder / "ours", folder / "logs"
    for name, data in script.files.items():
        path = tests / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(0o755 if name in script.executables or name == script.entry else 0o644)
    (ours / "bin").mkdir(parents=True)
    (ours / "site").mkdir()
    (ours / "shim.py").write_bytes(source_of("verifiers.terminal.shim"))
    (ours / "site" / "headrace_ctrf.py").write_bytes(source_of("verifiers.terminal.headrace_ctrf"))
    for name in ("pip/__init__.py", "pip/__main__.py", "pip/_internal/__init__.py", "pip/_internal/cli/__init__.py",
                 "pip/_internal/cli/main.py"):
        path = ours / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_PIP + ("main()\n" if name == "pip/__main__.py" else ""))
    for name in _SHIMS:
        path = ours / "bin" / name
        path.write_text(f'#!/bin/sh\nexec /opt/python/bin/python3 -P -s -B {OURS}/shim.py {name} "$@"\n')
        path.chmod(0o755)
    logs.mkdir()
    for name in _LOGS:
        (logs / name).symlink_to(f"{SCRATCH}/logs/{name}")
    for made in (folder, *(path for path in folder.rglob("*") if path.is_dir() and not path.is_symlink())):
        made.chmod(0o755)
    return {"/tests": tests, OURS: ours, "/logs": logs}


def _libraries(script: Script) -> dict[str, Path]:
    """pytest as it is installed beside us, for tests that mention it."""
    if not any(b"pytest" in data for data in script.files.values()):
        return {}
    found = {}
    for name in _PYTEST:
        spec = importlib.util.find_spec(name)
        if spec is None or not spec.submodule_search_locations:
            return {}
        found[f"{LIBRARIES}/{name}"] = Path(next(iter(spec.submodule_search_locations)))
    return found


def _files() -> dict[str, str]:
    return {f"{SCRATCH}/home/.local/bin/env": "", f"{SCRATCH}/home/.cargo/env": ""}


def _marks(task: Task) -> list[str]:
    known = [task.prompt.encode(), *task.files.values()]
    found = []
    for mark in (mark.encode() for mark in MARKS):
        if not any(mark in text for text in known):
            found += [mark, mark.hex().encode(), *(_base64(mark, at) for at in range(3))]
    return [mark.decode() for mark in found]


def _base64(mark: bytes, before: int) -> bytes:
    """The digits that are the same whatever stands around the mark, with so many bytes (modulo 3) before it."""
    digits = base64.b64encode(b"\0" * before + mark)
    return digits[(0, 2, 3)[before]:8 * (before + len(mark)) // 6]


def _takers(task: Task, modules: set[str]) -> list[str]:
    """Names that a test run would load as its own, but for those that the task gave or speaks of."""
    given = {name.partition("/")[0].removesuffix(".py") for name in task.files}
    words = set(re.findall(r"\w+", task.prompt))
    return sorted((sys.stdlib_module_names | set(_TAKERS) | modules) - (given | words) | {"headrace_ctrf"})


def _environment(hidden: TerminalHidden, script: Script, task: Task) -> dict[str, str]:
    return {**task.environment, **script.environment, "HOME": f"{SCRATCH}/home", "PATH": f"{OURS}/bin:{PATH}",
            "PYTHONPATH": f"{OURS}/site:{LIBRARIES}", "PYTHONNOUSERSITE": "1", "PYTHONHASHSEED": "0",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "headrace_ctrf",
            "PYTEST_ADDOPTS": "-p no:cacheprovider", "TEST_DIR": "/tests", "PWD": hidden.workdir}
