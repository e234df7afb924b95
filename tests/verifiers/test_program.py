"""Programs for `python3 -c`: the same on a Python like ours and on any other, and quick to start."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

from verifiers.bridge import CANDIDATE, CHECK
from verifiers.program import FLAGS, program, request
from verifiers.stdio import SOURCE_LOOK

SLOW = {"ast", "collections", "enum", "functools", "json", "random", "re", "signal", "types", "typing"}
LOADED = f"\nimport sys\nprint(*sorted(name for name in sys.modules if name in {SLOW!r}))"


def run(code: str, stdin: bytes = b"") -> bytes:
    return subprocess.run([sys.executable, *FLAGS, "-c", code], input=stdin, check=True, capture_output=True).stdout


def another_python(*modules: str) -> str:
    """The program as a Python with other bytecode sees it: what is compiled in it is of no use there."""
    magic = repr(importlib.util.MAGIC_NUMBER)
    assert program(*modules).count(magic) == 1
    return program(*modules).replace(magic, repr(b"other"))


@pytest.mark.parametrize("modules", [CANDIDATE, CHECK, SOURCE_LOOK])
def test_programs_of_a_verdict_import_nothing_that_takes_long(modules: tuple[str, ...]) -> None:
    assert run(program(*modules).replace(".main()", "") + LOADED).split() == []


def test_a_python_of_another_version_runs_the_source() -> None:
    asked = request(preamble="", entry="f", outcomes={}, seed=0, check="def check(f):\n    assert f(1) == 2\n")
    assert run(program(*CHECK), asked) == run(another_python(*CHECK), asked)
    assert b'"args":[1]' in run(another_python(*CHECK), asked)


def test_a_check_that_draws_at_random_draws_the_same_again() -> None:
    check = "def check(f):\n    import random\n    assert f(random.random()) == 2\n"
    asked = [request(preamble="", entry="f", outcomes={}, seed=seed, check=check) for seed in (0, 0, 1)]
    first, again, other = (run(program(*CHECK), one) for one in asked)
    assert first == again != other and b"new" in first
