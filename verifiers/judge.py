"""A process that judges, one verdict after another: `python -m verifiers.judge FD`.

It reads requests from the socket FD and answers each with the recorded score. Whatever a submission does to it (a
loop without end, memory, a crash of a library) ends this process and no other; its owner (`verifiers.judges`) starts
the next one.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import struct
import sys
from pathlib import Path
from typing import Any

import msgspec

from schemas.lifeline import die_with_parent
from schemas.settings import Settings

HEADER = struct.Struct("<I")


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    settings: Settings
    owner: int
    """Process id of the owner."""
    cached: bool = True


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
    from verifiers.scoring import Request, judge
    from verifiers.verdicts import Verdicts

    settings = setup.settings
    registry.use_files(settings.verifiers)
    judge_model_policy.use_settings(settings)
    artifacts = open_store(settings)
    backend = open_backend(settings, artifacts)
    _bound_memory(settings.verify_memory_mb)
    cache = Verdicts(Path(settings.home) / "verdicts.db") if setup.cached else None
    try:
        send(link, "ready")
        while data := receive(link):
            request = msgspec.msgpack.decode(data, type=Request)
            send(link, judge(request, artifacts, backend, cache))
    finally:
        backend.close()
        if cache is not None:
            cache.close()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # A thread that a verifier left behind does not keep the process.
