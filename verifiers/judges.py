"""Verdicts in processes of their own, so that nothing a submission does to a verifier reaches the consumer.

A verdict has its deadline here: a process that runs over it is killed with its sandboxes, and the next verdict gets a
fresh one. Status tells whose fault it was: over the deadline, or crashed by a signal of its own making, is
`verifier_error`; killed from outside, or never started, is `infra_failure`, which callers try again. Neither is 0.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import msgspec

from artifacts.store import ArtifactStore
from schemas.enums import ScoreStatus
from schemas.errors import UnavailableError
from schemas.events import ScoreRecorded
from schemas.settings import Settings
from verifiers.judge import Setup, receive, send
from verifiers.scoring import Request, failed_score

_START_S = 60.0
_GRACE_S = 2.0
"""For the sandboxes and the evidence of a verifier that kept its own deadline to the last moment."""
_ITS_OWN = frozenset({signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGXCPU})
"""Signals that a process brings on itself."""


class Judges:
    """At most `count` processes, started when first needed. Thread-safe: `score` waits for a free one."""

    def __init__(self, settings: Settings, artifacts: ArtifactStore, count: int = 1, *, cached: bool = True) -> None:
        """`cached`: a verdict given before on the same submission by the same verifier is given again unheard."""
        self._settings, self._artifacts, self._cached = settings, artifacts, cached
        self._free: queue.LifoQueue[_Judge | None] = queue.LifoQueue()
        for _ in range(count):
            self._free.put(None)
        self._count = count
        # A process dies with the thread that started it (PDEATHSIG): this one lives as long as we do.
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="judges")

    def score(self, request: Request) -> ScoreRecorded:
        """Never raises for a bad submission or a broken verifier. Raises UserError for settings that no judge can
        start with (an unknown backend, a verifier file that does not load)."""
        judge = self._free.get()
        try:
            if judge is None or judge.ended():
                judge = self._starter.submit(_Judge, self._settings, self._cached).result()
            answer = judge.ask(request)
            if isinstance(answer, ScoreRecorded):
                return answer
            judge = None
            return failed_score(request, *answer, self._artifacts)
        finally:
            self._free.put(judge)

    def close(self) -> None:
        """Waits for verdicts under way."""
        for _ in range(self._count):
            if judge := self._free.get():
                judge.close()
        self._starter.shutdown()

    def __enter__(self) -> Judges:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


Failure = tuple[ScoreStatus, str, dict[str, object]]


class _Judge:
    """One process and the socket to it."""

    def __init__(self, settings: Settings, cached: bool) -> None:
        self._link, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "verifiers.judge", str(theirs.fileno())], pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
        self._errors = _Tail(self._process)
        self._link.settimeout(_START_S)
        with contextlib.suppress(OSError):
            send(self._link, Setup(settings=settings, owner=os.getpid(), cached=cached))
            if receive(self._link):
                return
        self.kill()
        raise UnavailableError("verdicts cannot be given: the process for them did not start",
                               value=self._errors.last_line(), hint="`headrace doctor` says what this machine can run")

    def ended(self) -> bool:
        return self._process.poll() is not None

    def ask(self, request: Request) -> ScoreRecorded | Failure:
        self._link.settimeout(request.deadline_s + _GRACE_S)
        began = time.monotonic()
        try:
            send(self._link, request)
            data = receive(self._link)
        except TimeoutError:
            self.kill()
            return (ScoreStatus.VERIFIER_ERROR, "the verifier did not end before its deadline",
                    {"deadline_s": request.deadline_s})
        except OSError:
            data = b""
        if data:
            return msgspec.msgpack.decode(data, type=ScoreRecorded)
        left_s = max(0.1, request.deadline_s + _GRACE_S - (time.monotonic() - began))
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(left_s)
        return self._death()

    def _death(self) -> Failure:
        code = self._process.poll()
        self.kill()
        details: dict[str, object] = {"exit_code": code, "stderr": self._errors.text()}
        if code is not None and (code >= 0 or -code in _ITS_OWN):
            return ScoreStatus.VERIFIER_ERROR, "the verifier's process ended without a verdict", details
        return ScoreStatus.INFRA_FAILURE, "the verifier's process was killed", {"exit_code": code}

    def kill(self) -> None:
        """It and all that it started in its session; its sandboxes end with it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self.close()

    def close(self) -> None:
        self._link.close()
        try:
            self._process.wait(_START_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()


class _Tail:
    """The last of what a process wrote to stderr; passed on to ours as it comes."""

    _KEPT = 4000

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stderr is not None
        self._pipe, self._text = process.stderr, b""
        self._thread = threading.Thread(target=self._read, name="judge-stderr", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while part := os.read(self._pipe.fileno(), 65536):
            self._text = (self._text + part)[-self._KEPT:]
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write(part.decode(errors="backslashreplace"))

    def text(self) -> str:
        return self._text.decode(errors="backslashreplace")

    def last_line(self) -> str:
        lines = self.text().strip().splitlines()
        return lines[-1] if lines else ""

    def close(self) -> None:
        self._thread.join()
        self._pipe.close()
