"""Verdicts in processes of their own, so that nothing a submission does to a verifier reaches the consumer.

A verdict has its deadline here: a process that runs over it is killed with its sandboxes, and the next verdict gets a
fresh one. Status tells whose fault it was: over the deadline, or crashed by a signal of its own making, is
`verifier_error`; killed from outside, or never started, is `infra_failure`, which callers try again. Neither is 0.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import msgspec

from artifacts.store import ArtifactStore
from schemas.enums import ScoreStatus
from schemas.errors import UnavailableError
from schemas.events import ScoreRecorded
from schemas.settings import Settings
from verifiers.contract import checked
from verifiers.judge import Answer, Setup, receive, send
from verifiers.judge_tail import Tail
from verifiers.scoring import Request, failed_score
from verifiers.verifier import Score

_START_S = 60.0
_GRACE_S = 2.0
"""For the sandboxes and the evidence of a verifier that kept its own deadline to the last moment."""
_ITS_OWN = frozenset({signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGXCPU})
"""Signals that a process brings on itself."""
_MARK = "_HEADRACE_JUDGE"
"""Variable of a process that judges and of all that its verifiers start. Its helpers do not inherit it. No setting."""


class Judges:
    """At most `count` verdicts at a time, in processes that are started when first needed. As many again wait where
    verifiers of several owners take turns. Thread-safe: `score` waits until it may."""

    def __init__(self, settings: Settings, artifacts: ArtifactStore, count: int = 1, *, cached: bool = True) -> None:
        """`cached`: a verdict given before on the same submission by the same verifier is given again unheard."""
        self._settings, self._artifacts, self._cached = settings, artifacts, cached
        self._free: queue.LifoQueue[None] = queue.LifoQueue()
        for _ in range(count):
            self._free.put(None)
        self._count = count
        self._idle: list[_Judge] = []
        """The one used last comes last."""
        self._living = 0
        self._lock = threading.Lock()
        # A process dies with the thread that started it (PDEATHSIG): this one lives as long as we do.
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="judges")

    def score(self, request: Request) -> ScoreRecorded:
        """Never raises for a bad submission or a broken verifier. Raises UserError for settings that no judge can
        start with (an unknown backend, a verifier file that does not load)."""
        self._free.get()
        try:
            answer = self._answer(request)
        finally:
            self._free.put(None)
        if isinstance(answer, Failure):
            return failed_score(request, answer.status, answer.what, answer.details, self._artifacts)
        return answer

    def _answer(self, request: Request) -> ScoreRecorded | Failure:
        wanted: str | None = None
        while True:
            try:
                judge = self._take(wanted)
            except OSError as wrong:
                return Failure(ScoreStatus.INFRA_FAILURE, "no process can be started to judge", {"error": str(wrong)})
            answer = judge.ask(request)
            if isinstance(answer, Failure):
                self._forget(judge)
                return answer
            self._give_back(judge, answer)
            if answer.score is not None:
                return _read(answer.score, request)
            wanted = answer.verifier

    def _take(self, wanted: str | None) -> _Judge:
        """A free process, the one used last: any; or one that belongs to the verifier `wanted`, else a new one, even in
        the place of the one that was not used for longest."""
        with self._lock:
            right = [judge for judge in self._idle if wanted is None or judge.verifier == wanted]
            crowded = self._idle[:1] if self._living >= 2 * self._count else []
            free = right[-1:] or crowded
            taken = free[0] if free else None
            if taken:
                self._idle.remove(taken)
        if taken and right and not taken.ended():
            return taken
        if taken:
            taken.close()
            self._forget(taken)
        judge = self._starter.submit(_Judge, self._settings, self._cached).result()
        with self._lock:
            self._living += 1
        return judge

    def _give_back(self, judge: _Judge, answer: Answer) -> None:
        if answer.last:
            judge.close()
            self._forget(judge)
            return
        with self._lock:
            self._idle.append(judge)

    def _forget(self, judge: _Judge) -> None:
        """It has ended."""
        with self._lock:
            self._living -= 1

    def close(self) -> None:
        """Waits for verdicts under way."""
        for _ in range(self._count):
            self._free.get()
        for judge in self._idle:
            judge.close()
        self._starter.shutdown()

    def __enter__(self) -> Judges:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Failure(NamedTuple):
    status: ScoreStatus
    what: str
    details: dict[str, object]


def _read(data: bytes, request: Request) -> ScoreRecorded | Failure:
    """The score, looked at again here: a verifier may have changed what looks at it there."""
    broken = "the verifier's process gave no score"
    try:
        score = msgspec.msgpack.decode(data, type=ScoreRecorded)
        said = Score(status=ScoreStatus(score.status), reward=score.reward, components=score.components)
    except (ValueError, msgspec.MsgspecError) as wrong:
        return Failure(ScoreStatus.VERIFIER_ERROR, broken, {"error": str(wrong)})
    asked = (score.episode_id, score.submission, score.cause) == (request.episode_id, request.submission, request.cause)
    if not asked or checked(said).status != said.status or (score.reward is not None and score.evidence is None):
        return Failure(ScoreStatus.VERIFIER_ERROR, broken, {"returned": msgspec.to_builtins(score)})
    return score


class _Judge:
    """One process and the socket to it. `verifier`: whom it belongs to; null: it has judged nothing."""

    def __init__(self, settings: Settings, cached: bool) -> None:
        self.verifier: str | None = None
        self._numbers = itertools.count()
        self._mark = f"{_MARK}={secrets.token_hex(16)}"
        self._link, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "verifiers.judge", str(theirs.fileno())], pass_fds=(theirs.fileno(),),
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
                    env={**os.environ, _MARK: self._mark.partition("=")[2]})
            except OSError:
                self._link.close()
                raise
        self._errors = Tail(self._process)
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

    def ask(self, request: Request) -> Answer | Failure:
        """After a Failure the process is gone."""
        self._errors.begin()
        number, end = next(self._numbers), time.monotonic() + request.deadline_s + _GRACE_S
        try:
            self._link.settimeout(request.deadline_s + _GRACE_S)
            send(self._link, (number, request))
            while True:
                self._link.settimeout(max(0.001, end - time.monotonic()))
                data = receive(self._link)
                if not data:
                    break
                answer = msgspec.msgpack.decode(data, type=Answer)
                if answer.number == number:
                    self.verifier = self.verifier if answer.score is None else answer.verifier
                    return answer
        except TimeoutError:
            self.kill()
            return Failure(ScoreStatus.VERIFIER_ERROR, "the verifier did not end before its deadline",
                           {"deadline_s": request.deadline_s})
        except msgspec.MsgspecError as wrong:
            self.kill()
            return Failure(ScoreStatus.VERIFIER_ERROR, "the verifier's process gave no answer", {"error": str(wrong)})
        except OSError:
            pass
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.1, end - time.monotonic()))
        return self._death()

    def _death(self) -> Failure:
        code = self._process.poll()
        self.kill()
        details: dict[str, object] = {"exit_code": code, "stderr": self._errors.text()}
        if code is not None and (code >= 0 or -code in _ITS_OWN):
            return Failure(ScoreStatus.VERIFIER_ERROR, "the verifier's process ended without a verdict", details)
        return Failure(ScoreStatus.INFRA_FAILURE, "the verifier's process was killed", {"exit_code": code})

    def kill(self) -> None:
        """It and all that its verifiers started; its sandboxes end with it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        _kill_marked(self._mark.encode())
        self.close()

    def close(self) -> None:
        self._link.close()
        try:
            self._process.wait(_START_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()


def _kill_marked(mark: bytes) -> None:
    """Kill every process whose environment bears the mark, whatever session it has gone to."""
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        with contextlib.suppress(OSError):
            process = os.pidfd_open(int(name))
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if mark in file.read().split(b"\0"):
                        signal.pidfd_send_signal(process, signal.SIGKILL)
            finally:
                os.close(process)
