"""The owner's end of a container's keeper: asks it to kill and to count, and notices its end."""

from __future__ import annotations

import itertools
import time
from typing import NamedTuple

from sandboxes.docker_wire import ERR, OUT, Wire

ANSWER_S = 30.0


class Met(NamedTuple):
    """How often a limit was met: processes killed for memory, processes refused."""

    oom: int
    pids: int


class Keeper:
    """Owns its connection; when that closes, the keeper ends and the container with it."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._numbers = itertools.count()
        self._said = bytearray()
        self._counted = Met(0, 0)

    @property
    def complaint(self) -> str:
        """What the container's first processes said before they gave up."""
        return self._said.decode(errors="replace").strip()

    def kill(self) -> Met | None:
        """Kill all that was started; when this returns none of it is left. What `count` says."""
        return self._ask("kill")

    def count(self) -> Met | None:
        """The limits that were met since this was asked last; None when the keeper is gone."""
        return self._ask("count")

    def _ask(self, wanted: str) -> Met | None:
        question = f"{wanted} {next(self._numbers)}".encode()
        answer = bytearray()
        self._wire.converse(question + b"\n", {OUT: answer.extend, ERR: self._said.extend},
                            time.monotonic() + ANSWER_S, lambda: "" if answer.endswith(b"\n") else None)
        if not answer.startswith(question + b" "):
            return None
        before, now = self._counted, Met(*map(int, answer[len(question):].split()))
        self._counted = now
        return Met(now.oom - before.oom, now.pids - before.pids)

    def close(self) -> None:
        self._wire.close()
