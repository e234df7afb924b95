"""Programs for `python3 -c`: the same on a Python like ours and on any other, and quick to start."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from verifiers import program
from verifiers.bridge import CANDIDATE, CHECK
from verifiers.stdio import SOURCE_LOOK
from verifiers.terminal.probes import INSIDE

SLOW = {"ast", "collections", "enum", "functools", "json", "random", "re", "signal", "types", "typing"}
LOOK = b'{"do": "look", "paths": [], "limit_bytes": 1}'
CHECKED = {"preamble": "", "entry": "f", "outcomes": {}, "seed": 0, "check": "def check(f):\n    assert f(1) == 2\n"}


def run(argv: list[str], stdin: bytes = b"", cwd: Path | None = None) -> bytes:
    return subprocess.run([sys.executable, *argv[1:]], input=stdin, cwd=cwd, check=True, capture_output=True).stdout


def check(**changes: object) -> bytes:
    return run(*program.call(*CHECK, request={**CHECKED, **changes}))


@pytest.mark.parametrize("modules", [CANDIDATE, CHECK, SOURCE_LOOK])
def test_programs_of_a_verdict_import_nothing_that_takes_long(modules: tuple[str, ...]) -> None:
    argv, stdin = program.call(*modules)
    argv[-1] = argv[-1].replace("(**values)", "") + f"\nprint(*sorted({SLOW!r} & set(sys.modules)))"
    assert run(argv, stdin).split() == []


def test_a_python_of_another_version_runs_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is compiled for ours is of no use there."""
    ours, told = check(), run(program.command(INSIDE), LOOK)
    for made in (program.bundle, program.command):
        made.cache_clear()
    monkeypatch.setattr(importlib.util, "MAGIC_NUMBER", b"other")
    assert check() == ours and json.loads(ours)["new"]
    assert run(program.command(INSIDE), LOOK) == told
    for made in (program.bundle, program.command):
        made.cache_clear()


def test_a_check_that_draws_at_random_draws_the_same_again() -> None:
    drawing = "def check(f):\n    import random\n    assert f(random.random()) == 2\n"
    assert check(check=drawing) == check(check=drawing) != check(check=drawing, seed=1)


def test_the_source_is_looked_at_as_a_reader_would(tmp_path: Path) -> None:
    (tmp_path / "solution.py").write_text(
        "from os import *\ndef f(a=[], *, b={1}):\n    try:\n        eval(a)\n    except:\n        pass\n")
    said = json.loads(run(*program.call(*SOURCE_LOOK, path="solution.py"), cwd=tmp_path))
    assert said == {"compiles": True, "findings": [
        "1: star import", "2: mutable default argument", "4: eval", "5: bare except"]}
    for broken in ("def f(:\n", "return 1\n", "x = " + "(" * 300, "f'{'\n", "\0"):
        (tmp_path / "solution.py").write_text(broken)
        said = json.loads(run(*program.call(*SOURCE_LOOK, path="solution.py"), cwd=tmp_path))
        assert said["compiles"] is False and said["error"], broken
