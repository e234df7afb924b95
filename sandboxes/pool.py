"""Warm sandboxes: made ahead of being asked for, each handed out once, and leases that end.

For every sandbox that is taken one like it is made, since the next sample of a task wants the same. A warm one has run
no command, and its workspace was proved by digest before it stood ready. A used one is never handed out again: `reset`
gives its holder a fresh one. No more than `leases` are out at once, no more than `warm` stand ready. What is held over
its lease is closed, whatever its holder does.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeVar

import msgspec

from sandboxes.sandbox import Backend, ExecResult, Sandbox, SandboxSpec, Session
from sandboxes.shelves import FAILURES, Shelf, Shelves, Warm, take
from schemas.errors import ArtifactError, SandboxError

log = logging.getLogger(__name__)
IDLE_S = 300.0
"""A warm sandbox that nobody took is thrown away after this long."""
_TURN_S = 1.0
_Result = TypeVar("_Result")


class Pool:
    """A Backend over another one. Thread-safe."""

    def __init__(self, backend: Backend, *, warm: int, leases: int = 1024, wait_s: float = 30.0,
                 idle_s: float = IDLE_S) -> None:
        self.backend = backend
        self.name, self.isolates, self.capabilities = backend.name, backend.isolates, backend.capabilities
        self._limit, self._wait_s, self._idle_s = leases, wait_s, idle_s
        self._changed = threading.Condition()
        self._shelves = Shelves(warm)
        self._wanted: deque[Shelf] = deque(maxlen=4 * warm)
        """One entry for each sandbox to be made ahead."""
        self._leased: set[Leased] = set()
        self._coming = 0
        """Leases whose sandbox is being made."""
        self._closed = False
        self._threads = [threading.Thread(target=work, name="headrace-pool", daemon=True)
                         for work in (self._keep, self._make_ahead)]
        for thread in self._threads:
            thread.start()

    def acquire(self, spec: SandboxSpec) -> Leased:
        """A lease of a warm sandbox, or of one made now. Raises SandboxError (kind `sandbox_start`) where all leases
        stay taken."""
        self._claim()
        lease = None
        try:
            lease = Leased(self, spec, self.fresh(spec))
        finally:
            with self._changed:
                self._coming -= 1
                too_late = self._closed
                if lease and not too_late:
                    self._leased.add(lease)
                self._changed.notify_all()
        if too_late:
            lease.close()
            raise _is_closed()
        return lease

    def prepare(self, spec: SandboxSpec, count: int) -> None:
        """Have so many made ahead."""
        with self._changed:
            self._wanted.extend([self._shelves.of(spec)] * count)
            self._changed.notify_all()

    def ready(self, spec: SandboxSpec) -> int:
        """How many of this kind could be handed out at once."""
        with self._changed:
            return len(self._shelves.of(spec).ready)

    @property
    def open_count(self) -> int:
        """Leases that are out."""
        with self._changed:
            return len(self._leased)

    def identify(self, image: str) -> str:
        return self.backend.identify(image)

    def reap(self) -> int:
        return self.backend.reap()

    def close(self) -> None:
        """Disposes of all, leased ones too, and closes the backend below."""
        with self._changed:
            self._closed = True
            leased = list(self._leased)
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        _dispose(leased)
        self.distrust()
        self.backend.close()

    def fresh(self, spec: SandboxSpec) -> Sandbox:
        """A sandbox that nobody has used."""
        with self._changed:
            if self._closed:
                raise _is_closed()
            shelf = self._shelves.of(spec)
            found, unfit = take(shelf, time.monotonic() + spec.lease_s)
            self._wanted.append(shelf)
            self._changed.notify_all()
        _dispose(unfit)
        if found is None:
            found = self.backend.acquire(spec)
            shelf.failures = 0
        return found

    def give_back(self, lease: Leased) -> None:
        with self._changed:
            self._leased.discard(lease)
            self._changed.notify_all()

    def distrust(self) -> None:
        """Throw away what stands ready: one sandbox broke, and what broke it may have broken the others."""
        with self._changed:
            gone = self._shelves.clear()
        _dispose(gone)

    def _claim(self) -> None:
        deadline = time.monotonic() + self._wait_s
        with self._changed:
            while not self._closed and len(self._leased) + self._coming >= self._limit:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise SandboxError(f"all {self._limit} sandboxes are leased", kind="sandbox_start",
                                       hint="close those that are done with")
                self._changed.wait(left)
            if self._closed:
                raise _is_closed()
            self._coming += 1

    def _make_ahead(self) -> None:
        while True:
            with self._changed:
                while not self._wanted and not self._closed:
                    self._changed.wait()
                if self._closed:
                    return
                shelf = self._wanted.popleft()
            if shelf.failures < FAILURES:
                self._make(shelf)

    def _keep(self) -> None:
        """Closes what is over."""
        while True:
            with self._changed:
                if self._closed:
                    return
                self._changed.wait(self._until_next())
                now = time.monotonic()
                ended = [lease for lease in self._leased if lease.expires <= now]
                idle = self._shelves.idle(now)
            for lease in ended:
                log.warning("the lease of sandbox %s (%s) has ended", lease.id, lease.spec.owner)
                lease.close()
            _dispose(idle)

    def _until_next(self) -> float:
        now = time.monotonic()
        return max(0.0, min([_TURN_S, *(lease.expires - now for lease in self._leased)]))

    def _make(self, shelf: Shelf) -> None:
        spec = msgspec.structs.replace(shelf.spec, owner="pool", lease_s=self._idle_s + shelf.spec.lease_s)
        born = time.monotonic()
        try:
            sandbox = proved(self.backend.acquire(spec))
        except (SandboxError, ArtifactError, OSError) as wrong:
            shelf.failures += 1
            if shelf.failures == FAILURES:
                log.warning("sandboxes of this kind are not made ahead any more: %s", wrong)
            return
        shelf.failures = 0
        with self._changed:
            gone = self._shelves.put(shelf, Warm(sandbox, time.monotonic() + self._idle_s, born + spec.lease_s))
            self._changed.notify_all()
        _dispose(gone)


class Leased:
    """The Sandbox contract for as long as the lease lasts. `expires` is a monotonic time."""

    def __init__(self, pool: Pool, spec: SandboxSpec, sandbox: Sandbox) -> None:
        self.spec, self.expires = spec, time.monotonic() + spec.lease_s
        self._pool, self._sandbox = pool, sandbox
        self._lock = threading.Lock()
        self._over = False

    @property
    def id(self) -> str:
        return self._sandbox.id

    @property
    def backend(self) -> str:
        return self._sandbox.backend

    @property
    def initial(self) -> str:
        return self._sandbox.initial

    def exec(self, argv: Sequence[str], *, deadline_s: float = 30.0, stdin: bytes = b"",
             environment: Mapping[str, str] | None = None, cwd: str | None = None) -> ExecResult:
        return self._held(lambda sandbox: sandbox.exec(
            argv, deadline_s=deadline_s, stdin=stdin, environment=environment, cwd=cwd))

    def session(self, kind: Literal["shell", "python"], state: bytes = b"") -> Session:
        return self._held(lambda sandbox: sandbox.session(kind, state))

    def read(self, path: str, limit_bytes: int = 16 << 20) -> bytes:
        return self._held(lambda sandbox: sandbox.read(path, limit_bytes))

    def write(self, path: str, data: bytes) -> None:
        self._held(lambda sandbox: sandbox.write(path, data))

    def snapshot(self) -> str:
        return self._held(lambda sandbox: sandbox.snapshot())

    def reset(self) -> str:
        """Another sandbox, as this one was at first; the digest that proves it. The lease ends when it would have."""
        fresh = self._pool.fresh(self.spec)
        with self._lock:
            used, over = self._sandbox, self._over
            self._sandbox = fresh if not over else used
        _dispose([fresh if over else used])
        if over:
            raise self._has_ended()
        return self._held(lambda sandbox: proved(sandbox).initial)

    def close(self) -> None:
        with self._lock:
            if self._over:
                return
            self._over = True
        try:
            self._sandbox.close()
        finally:
            self._pool.give_back(self)

    def _held(self, call: Callable[[Sandbox], _Result]) -> _Result:
        if self._over:
            raise self._has_ended()
        try:
            return call(self._sandbox)
        except SandboxError as wrong:
            if self._over and time.monotonic() >= self.expires:
                raise self._has_ended() from None
            if wrong.kind == "sandbox_broken":
                self._pool.distrust()
            raise

    def _has_ended(self) -> SandboxError:
        if time.monotonic() >= self.expires:
            return SandboxError("the lease of the sandbox has ended", value=self.id)
        return SandboxError("sandbox is closed", kind="sandbox_closed", value=self.id)


def proved(sandbox: Sandbox) -> Sandbox:
    """The sandbox, if its workspace is what it should be at first; else it is closed. Raises SandboxError."""
    try:
        found = sandbox.snapshot()
        if found != sandbox.initial:
            raise SandboxError("a fresh sandbox does not have the workspace that it should have", kind="sandbox_start",
                               where=sandbox.initial, value=found)
    except BaseException:
        _dispose([sandbox])
        raise
    return sandbox


def _dispose(sandboxes: Sequence[Sandbox]) -> None:
    for sandbox in sandboxes:
        try:
            sandbox.close()
        except SandboxError as wrong:
            log.warning("a sandbox did not close; its lease or the reaper will end it: %s", wrong)


def _is_closed() -> SandboxError:
    return SandboxError("the pool is closed", kind="sandbox_closed")
