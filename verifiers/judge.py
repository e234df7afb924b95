"""A process that judges, one verdict after another: `python -m verifiers.judge FD`.

It reads requests from the socket FD and answers each with the recorded score. Whatever a submission does to it (a
loop without end, memory, a crash of a library) ends this process and no other; its owner (`verifiers.judges`) starts
the next one.

A verifier of somebody else's may do anything to the process that it runs in, so each has processes of its own, and ours
have theirs: whose verifier runs first in one has it for good, and requests for others are sent back. A process that
holds much memory after a verdict, or children that it did not have before, gives no further one.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import socket
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from schemas.lifeline import die_with_parent
from schemas.settings import Settings

if TYPE_CHECKING:
    from artifacts.store import ArtifactStore
    from sandboxes.sandbox import Backend
    from verifiers.scoring import Request
    from verifiers.verdicts import Verdicts

HEADER = struct.Struct("<I")
_PR_SET_CHILD_SUBREAPER = 36
_MEMORY_SHARE = 2
"""Of the memory that a process may have, one over this is what it may keep between two verdicts."""
_DATA_PAGES = 5
"""Which number of /proc/self/statm tells the memory that RLIMIT_DATA bounds, in pages."""
_ROUNDS = 100
"""What the ended leave behind becomes ours, and is ended in the next round."""


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    settings: Settings
    owner: int
    """Process id of the owner."""
    cached: bool = True


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    """Of the request: nothing else is taken for its answer."""
    score: bytes | None = None
    """The recorded score; null: this process belongs to another verifier than `verifier`."""
    verifier: str = ""
    """Whom this process belongs to, or should; empty: to the verifiers of this package."""
    last: bool = False
    """The process ends now."""


def send(link: socket.socket, message: Any) -> None:
    data = msgspec.msgpack.encode(message)
    link.sendall(HEADER.pack(len(data)) + data)


def receive(link: socket.socket) -> bytes:
    """The next message; empty at the end of the stream. Raises TimeoutError."""
    head = _exactly(link, HEADER.size)
    return _exactly(link, HEADER.unpack(head)[0]) if head else b""


def _exactly(link: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = link.recv(count - len(data))
        if not part:
            return b""
        data += part
    return bytes(data)


def main() -> None:
    link = socket.socket(fileno=int(sys.argv[1]))
    setup = msgspec.msgpack.decode(receive(link), type=Setup)
    die_with_parent(lambda pid: pid == setup.owner)
    # What a verifier's children leave behind is ours, and ends when we do.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _serve(link, setup)


def _bound_memory(memory_mb: int) -> None:
    """Beyond it an allocation fails, in verifiers; sandboxes, whose helper runs by now, have limits of their own."""
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (memory_mb << 20, hard))


def _serve(link: socket.socket, setup: Setup) -> None:
    from artifacts import open_store
    from sandboxes import open_backend
    from verifiers import judge_model_policy, registry
    from verifiers.scoring import Request
    from verifiers.verdicts import Verdicts

    settings = setup.settings
    registry.use_files(settings.verifiers)
    judge_model_policy.use_settings(settings)
    artifacts = open_store(settings)
    backend = open_backend(settings, artifacts)
    _bound_memory(settings.verify_memory_mb)
    cache = Verdicts(Path(settings.home) / "verdicts.db") if setup.cached else None
    helpers = _children()
    try:
        send(link, "ready")
        bench = Bench(settings.verify_memory_mb << 20, helpers)
        while data := receive(link):
            number, request = msgspec.msgpack.decode(data, type=tuple[int, Request])
            answer = bench.answer(number, request, artifacts, backend, cache)
            send(link, answer)
            if answer.last:
                break
    finally:
        _end_children(helpers)  # First: what was forked here holds the helpers' sockets open.
        backend.close()
        if cache is not None:
            cache.close()


class Bench:
    """What this process knows of itself from verdict to verdict."""

    def __init__(self, memory_bytes: int, helpers: set[int]) -> None:
        self._memory_bytes, self._helpers = memory_bytes, helpers
        self._verifier: str | None = None

    def answer(self, number: int, request: Request, artifacts: ArtifactStore, backend: Backend,
               cache: Verdicts | None) -> Answer:
        from verifiers import registry
        from verifiers.case import load_case
        from verifiers.scoring import judge_case

        case = load_case(request.submission, artifacts)
        wanted = "" if registry.is_ours(case.name) else case.name
        if self._verifier not in (None, wanted):
            return Answer(number=number, verifier=wanted)
        self._verifier = wanted
        score = msgspec.msgpack.encode(judge_case(case, request, artifacts, backend, cache))
        return Answer(number=number, score=score, verifier=wanted, last=self._worn())

    def _worn(self) -> bool:
        killable = sys.modules.get("verifiers.killable")
        known = self._helpers | (killable.running() if killable else set())
        return _data_bytes() > self._memory_bytes // _MEMORY_SHARE or not _children() <= known


def _data_bytes() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[_DATA_PAGES]) * resource.getpagesize()


def _children() -> set[int]:
    """Direct children, as far as the kernel tells."""
    found: set[int] = set()
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"/proc/self/task/{thread}/children", "rb") as file:
            found.update(map(int, file.read().split()))
    return found


def _end_children(helpers: set[int]) -> None:
    """All but the helpers, which end by themselves."""
    for _ in range(_ROUNDS):
        found = _children() - helpers
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        if not found:
            break


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # A thread that a verifier left behind does not keep the process.
