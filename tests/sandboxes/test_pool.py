"""Pools: warm sandboxes are handed out once, leases end, and whatever happens the count is kept."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from artifacts.store import DirectoryStore
from sandboxes import open_backend
from sandboxes.bubblewrap import BubblewrapBackend
from sandboxes.pool import FAILURES, Leased, Pool
from sandboxes.sandbox import Limits, SandboxSpec, Setup
from schemas.errors import SandboxError
from schemas.settings import Settings
from tests.sandboxes.host import cgroups_of, descriptors_of, namespace_of, processes_in, wait_for_end

SPEC = SandboxSpec(files={"a": b"1"})


@pytest.fixture
def made(bubblewrap: BubblewrapBackend) -> Iterator[Callable[..., Pool]]:
    pools: list[Pool] = []

    def make(**options: float) -> Pool:
        pools.append(Pool(bubblewrap, **{"warm": 4, **options}))  # type: ignore[arg-type]
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


def wait_until(holds: Callable[[], bool], deadline_s: float = 30.0) -> None:
    deadline = time.monotonic() + deadline_s
    while not holds():
        assert time.monotonic() < deadline, "it never came to hold"
        time.sleep(0.01)


def ids_ready(pool: Pool, spec: SandboxSpec = SPEC) -> set[str]:
    with pool._changed:
        return {warm.sandbox.id for warm in pool._shelves.of(spec).ready}


def test_warm_ones_are_handed_out_once_and_used_ones_never_again(made: Callable[..., Pool]) -> None:
    """A dirty sandbox went to the next task after a restart of its controller (OpenSandbox#723)."""
    pool = made()
    pool.prepare(SPEC, 3)
    wait_until(lambda: pool.ready(SPEC) == 3)
    ready, seen = ids_ready(pool), set()
    for number in range(12):
        lease = pool.acquire(SPEC)
        assert lease.id not in seen and lease.snapshot() == lease.initial
        assert number > 2 or lease.id in ready
        seen.add(lease.id)
        assert lease.exec(["sh", "-c", "cat a; ls -A /tmp; echo dirt | tee a b /tmp/c"]).stdout == b"1dirt\n"
        lease.close()
    assert pool.open_count == 0


def test_one_like_it_is_made_for_each_that_is_taken(made: Callable[..., Pool]) -> None:
    pool = made()
    lease = pool.acquire(SPEC)
    wait_until(lambda: pool.ready(SPEC) == 1)
    lease.close()
    others = [msgspec.structs.replace(SPEC, **change) for change in (  # type: ignore[arg-type]
        {"files": {"a": b"2"}}, {"limits": Limits(pids=9)}, {"environment": {"A": "1"}}, {"aliases": ["/app"]},
        {"readonly": {"/x": Path("/dev/null")}}, {"network": "host"}, {"setup": Setup(commands=["true"])})]
    assert [pool.ready(other) for other in others] == [0] * len(others)
    assert pool.ready(msgspec.structs.replace(SPEC, owner="somebody", lease_s=1.0)) == 1


def test_no_more_stand_ready_than_may_and_the_last_kinds_stay(made: Callable[..., Pool],
                                                              bubblewrap: BubblewrapBackend) -> None:
    pool = made(warm=3)
    specs = [SandboxSpec(files={"n": b"%d" % number}) for number in range(5)]
    for spec in specs:
        pool.acquire(spec).close()
        wait_until(lambda spec=spec: pool.ready(spec) == 1)  # type: ignore[misc]
    wait_until(lambda: bubblewrap.open_count == 3)
    assert [pool.ready(spec) for spec in specs] == [0, 0, 1, 1, 1]
    idle = made(warm=0)
    idle.prepare(SPEC, 2)
    idle.acquire(SPEC).close()
    assert idle.ready(SPEC) == 0


def test_what_nobody_takes_is_thrown_away(made: Callable[..., Pool], bubblewrap: BubblewrapBackend) -> None:
    """Looking after idle ones must not keep them alive (deer-flow#5550)."""
    pool = made(idle_s=0.5)
    pool.prepare(SPEC, 2)
    wait_until(lambda: bubblewrap.open_count == 2)
    until = time.monotonic() + 30
    while bubblewrap.open_count and time.monotonic() < until:
        pool.reap()
        assert pool.ready(SPEC) <= 2
    assert bubblewrap.open_count == 0


def test_a_lease_begins_when_it_is_taken(made: Callable[..., Pool]) -> None:
    """One that was about to end was handed out, and ended in its new holder's hands (OpenSandbox#986)."""
    pool = made(idle_s=60)
    short = msgspec.structs.replace(SPEC, lease_s=5.0)
    pool.prepare(short, 1)
    wait_until(lambda: pool.ready(short) == 1)
    ready = ids_ready(pool)
    lease = pool.acquire(msgspec.structs.replace(SPEC, lease_s=600.0))
    assert lease.id not in ready  # it would have ended after 65 s
    assert lease.exec(["cat", "a"]).stdout == b"1"
    lease.close()


def test_a_lease_that_ends_is_closed_whatever_its_holder_does(made: Callable[..., Pool],
                                                             bubblewrap: BubblewrapBackend) -> None:
    pool = made(leases=1, warm=0)
    lease = pool.acquire(msgspec.structs.replace(SPEC, lease_s=1.0))
    space = namespace_of(lease)
    with pytest.raises(SandboxError, match="has ended") as caught:
        lease.exec(["sleep", "60"], deadline_s=60)
    assert caught.value.kind == "sandbox_broken"
    wait_until(lambda: pool.open_count == 0)
    assert processes_in(space) == [] and bubblewrap.open_count == 0
    for use in (lambda: lease.exec(["true"]), lease.snapshot, lambda: lease.read("a"), lease.reset):
        with pytest.raises(SandboxError, match="has ended"):
            use()
    lease.close()
    again = pool.acquire(SPEC)  # its place is free
    assert again.exec(["cat", "a"]).stdout == b"1"
    again.close()
    with pytest.raises(SandboxError, match="closed"):
        again.exec(["true"])


def test_no_more_are_out_than_may(made: Callable[..., Pool]) -> None:
    pool = made(leases=2, wait_s=0.2)
    held = [pool.acquire(SPEC) for _ in range(2)]
    with pytest.raises(SandboxError, match="all 2 sandboxes are leased") as caught:
        pool.acquire(SPEC)
    assert caught.value.kind == "sandbox_start"
    held.pop().close()
    held.append(pool.acquire(SPEC))
    patient = made(leases=1, wait_s=60)
    first = patient.acquire(SPEC)
    threading.Timer(0.2, first.close).start()
    patient.acquire(SPEC).close()
    for lease in held:
        lease.close()


def test_reset_is_a_fresh_sandbox_and_proved(made: Callable[..., Pool], bubblewrap: BubblewrapBackend,
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    """A reset that reset nothing and said that it had (ANOLISA#2290)."""
    pool = made()
    lease = pool.acquire(msgspec.structs.replace(SPEC, lease_s=100.0))
    before, expires, space = lease.id, lease.expires, namespace_of(lease)
    assert lease.exec(["sh", "-c", "rm a; echo x > b; sleep 60 & sleep 60"], deadline_s=0.3).timed_out
    assert lease.snapshot() != lease.initial
    assert lease.reset() == lease.initial == lease.snapshot()
    assert lease.id != before and lease.expires == expires and processes_in(space) == []
    assert lease.exec(["sh", "-c", "cat a; ls"]).stdout == b"1a\n"
    made_by = bubblewrap.acquire

    def dirty(spec: SandboxSpec) -> object:
        sandbox = made_by(spec)
        sandbox.write("b", b"left over")
        return sandbox

    monkeypatch.setattr(bubblewrap, "acquire", dirty)
    pool.distrust()
    wait_until(lambda: pool.ready(SPEC) == 0)
    with pytest.raises(SandboxError, match="does not have the workspace"):
        lease.reset()
    lease.close()


def test_kinds_that_fail_are_not_made_ahead_for_ever(made: Callable[..., Pool]) -> None:
    """A warm pool went on making what could not be made (daytona#3289)."""
    pool = made()
    wrong = SandboxSpec(readonly={"/x": Path("/no/such/file")})
    tried = []
    acquire = pool.backend.acquire
    pool.backend.acquire = lambda spec: tried.append(spec) or acquire(spec)  # type: ignore[method-assign,func-returns-value]
    for _ in range(10):
        with pytest.raises(SandboxError):
            pool.acquire(wrong)
    pool.prepare(SPEC, 1)
    wait_until(lambda: pool.ready(SPEC) == 1)
    assert len(tried) <= 10 + FAILURES + 1


def test_a_spawner_that_dies_takes_no_more_than_what_it_held(made: Callable[..., Pool],
                                                             bubblewrap: BubblewrapBackend) -> None:
    pool = made()
    pool.prepare(SPEC, 3)
    wait_until(lambda: pool.ready(SPEC) == 3)
    lease = pool.acquire(SPEC)
    os.kill(bubblewrap.spawner_pid, signal.SIGKILL)
    wait_for_end([bubblewrap.spawner_pid])
    with pytest.raises(SandboxError) as caught:
        lease.exec(["true"])
    assert caught.value.kind == "sandbox_broken"
    lease.close()
    again = pool.acquire(SPEC)  # those that stood ready were broken too
    assert again.exec(["cat", "a"]).stdout == b"1"
    again.close()


def test_many_threads_share_a_pool(made: Callable[..., Pool], bubblewrap: BubblewrapBackend) -> None:
    pool = made(warm=3, leases=5)
    specs = [SandboxSpec(files={"n": b"%d" % kind}, lease_s=60) for kind in range(3)]
    out, most = [0], [0]
    lock = threading.Lock()
    seen: set[str] = set()

    def live(number: int) -> None:
        lease = pool.acquire(specs[number % 3])
        with lock:
            out[0] += 1
            most[0] = max(most)
            assert lease.id not in seen
            seen.add(lease.id)
            assert out[0] <= 5
        try:
            assert lease.exec(["sh", "-c", "cat n; echo dirt > n"]).stdout == b"%d" % (number % 3)
            if number % 4 == 0:
                lease.reset()
                with lock:
                    assert lease.id not in seen
                    seen.add(lease.id)
                assert lease.read("n") == b"%d" % (number % 3)
        finally:
            with lock:
                out[0] -= 1
            lease.close()

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(live, range(60)))
    assert pool.open_count == 0
    wait_until(lambda: bubblewrap.open_count <= 3)


def test_close_disposes_of_all(bubblewrap: BubblewrapBackend) -> None:
    pool = Pool(bubblewrap, warm=3)
    pool.prepare(SPEC, 3)
    leases = [pool.acquire(SPEC) for _ in range(3)]
    spaces = [namespace_of(lease) for lease in leases]
    token = bubblewrap.folder.token
    held = descriptors_of()
    running = threading.Thread(target=lambda: _forgive(leases[0]))
    running.start()
    racing = threading.Thread(target=lambda: [_acquire_quietly(pool) for _ in range(50)])
    racing.start()
    pool.close()
    for thread in (running, racing):
        thread.join(30)
        assert not thread.is_alive()
    assert bubblewrap.open_count == 0 and [processes_in(space) for space in spaces] == [[]] * 3
    assert cgroups_of(token) == [] and list(bubblewrap.root.iterdir()) == []
    assert descriptors_of() < held
    with pytest.raises(SandboxError, match="pool is closed"):
        pool.acquire(SPEC)
    pool.close()


def _forgive(lease: Leased) -> None:
    with contextlib.suppress(SandboxError):
        lease.exec(["sleep", "60"], deadline_s=60)


def _acquire_quietly(pool: Pool) -> None:
    with contextlib.suppress(SandboxError):
        pool.acquire(SPEC).close()


def test_a_setting_keeps_sandboxes_warm(tmp_path: Path, artifacts: DirectoryStore, bubblewrap: object) -> None:
    backend = open_backend(Settings(home=str(tmp_path / "warm"), sandbox_warm=2), artifacts)
    assert isinstance(backend, Pool) and backend.name == "bubblewrap" and backend.isolates
    lease = backend.acquire(SPEC)
    assert lease.exec(["cat", "a"]).stdout == b"1" and backend.identify("") == "host"
    wait_until(lambda: backend.ready(SPEC) == 1)
    backend.close()
    assert list((tmp_path / "warm" / "sandboxes").iterdir()) == []
