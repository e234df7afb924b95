"""A function in a process of its own that can be killed: for libraries that may hang on what a policy wrote.

Invariants: a call ends within its deadline of processor time (four times that on the clock), whatever the library does,
in C or in Python: the kernel's timers end the child, also where its parent is dead; the next call finds a fresh child.
The child is started, never forked, has bounded memory, and answers in JSON. A child serves one call at a time and ends
when its parent does.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import importlib.metadata
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

_living: set[int] = set()
IDLE = 2
"""Children that wait for the next call."""
START_S = 120.0
ANSWER_BYTES = 16 << 20
_DEADLINES = (-signal.SIGPROF, -signal.SIGALRM)
_SERVE = "import sys; sys.path.insert(0, sys.argv[1]); from verifiers.killable import serve; serve(*sys.argv[2:])"


def versions(*packages: str) -> dict[str, str]:
    """Of the packages that a function calls: a part of what its verdicts depend on. Empty: not installed."""
    found = {}
    for name in packages:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = ""
    return found


def running() -> set[int]:
    """Process ids of all children."""
    return set(_living)


class DeadlineError(Exception):
    """The call did not end in time; its process is dead."""


class DiedError(Exception):
    """The process ended in another way: out of memory, a crash of the library."""


class Killable:
    """Calls of `module:function` with JSON arguments, from any thread."""

    def __init__(self, target: str, *, deadline_s: float, memory_mb: int) -> None:
        self.target, self.deadline_s, self.memory_mb = target, deadline_s, memory_mb
        self._idle: list[_Child] = []
        self._lock = threading.Lock()
        atexit.register(self.close)

    def call(self, **arguments: Any) -> Any:
        """What the function returned. Raises DeadlineError, DiedError, or ValueError with what it raised."""
        with self._lock:
            child = self._idle.pop() if self._idle else None
        child = child or _Child(self.target, self.deadline_s, self.memory_mb)
        try:
            answer = child.ask(arguments)
        except BaseException:
            child.kill()
            raise
        with self._lock:
            keep = len(self._idle) < IDLE
            if keep:
                self._idle.append(child)
        if not keep:
            child.kill()
        if "error" in answer:
            raise ValueError(answer["error"])
        return answer["value"]

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for child in idle:
            child.kill()


class _Child:
    def __init__(self, target: str, deadline_s: float, memory_mb: int) -> None:
        root = str(Path(__file__).resolve().parent.parent)
        environment = {name: os.environ[name] for name in ("PATH", "LANG", "LD_LIBRARY_PATH") if name in os.environ}
        self._clock_s = 4 * deadline_s + 1
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _SERVE, root, target, str(deadline_s), str(memory_mb)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
            env={**environment, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"})
        _living.add(self._process.pid)
        try:
            if self._line(START_S) != b"ready\n":
                raise DiedError("the process did not start")
        except BaseException:
            self.kill()
            raise

    def ask(self, arguments: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps(arguments).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise DiedError("the process is gone") from None
        answer: dict[str, Any] = json.loads(self._line(self._clock_s))
        return answer

    def _line(self, clock_s: float) -> bytes:
        assert self._process.stdout
        until, found, descriptor = time.monotonic() + clock_s, bytearray(), self._process.stdout.fileno()
        with selectors.DefaultSelector() as ready:
            ready.register(descriptor, selectors.EVENT_READ)
            while not found.endswith(b"\n"):
                if not ready.select(max(0.0, until - time.monotonic())):
                    raise DeadlineError
                data = os.read(descriptor, 1 << 16)
                if not data:
                    raise self._ended()
                found += data
                if len(found) > ANSWER_BYTES:
                    raise DiedError("an answer without end")
        return bytes(found)

    def _ended(self) -> Exception:
        code = self._process.wait()
        if code in _DEADLINES:
            return DeadlineError()
        return DiedError(f"the process ended by signal {-code}" if code < 0 else f"the process ended with {code}")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        _living.discard(self._process.pid)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def serve(target: str, deadline_s: str, memory_mb: str) -> None:
    """The child: one JSON line in, one out, until its standard input ends."""
    import resource

    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    size = int(memory_mb) << 20
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    module, _, name = target.partition(":")
    function = getattr(importlib.import_module(module), name)
    answers.write(b"ready\n")
    for line in sys.stdin.buffer:
        signal.setitimer(signal.ITIMER_PROF, float(deadline_s))
        signal.setitimer(signal.ITIMER_REAL, 4 * float(deadline_s))
        try:
            answer = {"value": function(**json.loads(line))}
        except MemoryError:
            os._exit(78)  # What is left of the heap is not to be trusted.
        except Exception as wrong:
            answer = {"error": f"{type(wrong).__name__}: {wrong}"[:500]}
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        answers.write(json.dumps(answer).encode() + b"\n")
