"""A function that hangs, eats memory or crashes ends within its deadline, alone; the next call is served; no process is
left, also where the parent was killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from verifiers.killable import DeadlineError, DiedError, Killable

ROOT = Path(__file__).resolve().parents[2]
TARGET = "tests.verifiers.test_math_process:work"


def work(what: str, value: Any = None) -> Any:
    """What a child does in these tests."""
    if what == "loop":
        while True:
            pass
    if what == "one long call in C":
        return len(str(9 ** 10**9))
    if what == "sleep":
        time.sleep(1000)
    if what == "memory":
        return len(bytes(1 << 34))
    if what == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if what == "raise":
        raise LookupError("no such thing")
    if what == "print":
        print("noise")
        os.write(1, b"more noise\n")
    return [value, os.getpid()] if what == "pid" else value


@pytest.fixture
def killable() -> Iterator[Killable]:
    before = set(psutil.Process().children())
    made = Killable(TARGET, deadline_s=0.3, memory_mb=2048)
    yield made
    made.close()
    assert set(psutil.Process().children()) <= before


def test_values_come_back_and_a_child_is_kept(killable: Killable) -> None:
    one, two = killable.call(what="pid", value="é\n"), killable.call(what="pid", value={"a": [1.5, None]})
    assert (one[0], two[0]) == ("é\n", {"a": [1.5, None]}) and one[1] == two[1] != os.getpid()
    assert killable.call(what="print", value=3) == 3, "what a library prints is no answer"


@pytest.mark.parametrize("what", ["loop", "one long call in C", "sleep"])
def test_what_does_not_end_is_ended(killable: Killable, what: str) -> None:
    killable.call(what="pid")
    with pytest.raises(DeadlineError):
        killable.call(what=what)
    assert killable.call(what="echo", value=1) == 1


@pytest.mark.parametrize("what", ["memory", "crash"])
def test_a_crash_is_told_apart_from_a_deadline(killable: Killable, what: str) -> None:
    with pytest.raises(DiedError):
        killable.call(what=what)
    assert killable.call(what="echo", value=1) == 1


def test_what_the_function_raises_comes_back_and_the_child_lives_on(killable: Killable) -> None:
    pid = killable.call(what="pid")[1]
    with pytest.raises(ValueError, match="LookupError: no such thing"):
        killable.call(what="raise")
    assert killable.call(what="pid")[1] == pid


def test_calls_from_many_threads_get_their_own_answers(killable: Killable) -> None:
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda value: killable.call(what="echo", value=value), range(24))) == list(range(24))


@pytest.mark.parametrize("what", ["loop", "echo"])
def test_a_child_does_not_outlive_a_parent_that_was_killed(what: str) -> None:
    program = (f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
               "from verifiers.killable import Killable\n"
               f"made = Killable({TARGET!r}, deadline_s=0.5, memory_mb=2048)\n"
               "print(made.call(what='pid')[1], flush=True)\n"
               f"made.call(what={what!r})\n"
               "import time; time.sleep(1000)\n")
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert parent.stdout
    with parent.stdout:
        child = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    with contextlib.suppress(psutil.NoSuchProcess):
        child.wait(60)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
