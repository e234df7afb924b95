"""The owner's end of a container's keeper: asks it to kill and to count, and notices its end."""

from __future__ import annotations

import itertools
import time

from sandboxes.docker_wire import ERR, OUT, Wire

ANSWER_S = 30.0


class Keeper:
    """Owns its connection; when that closes, the keeper ends and the container with it."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._numbers = itertools.count()
        self._said = bytearray()
        self.oom_kills = 0

    @property
    def complaint(self) -> str:
        """What the container's first processes said before they gave up."""
        return self._said.decode(errors="replace").strip()

    def kill(self) -> bool:
        """Kill all that was started; when this returns True none of it is left."""
        return self._ask("kill")

    def count(self) -> bool:
        """Look how many processes the memory limit has killed. False when the keeper is gone."""
        return self._ask("count")

    def _ask(self, wanted: str) -> bool:
        question = f"{wanted} {next(self._numbers)}".encode()
        answer = bytearray()
        self._wire.converse(question + b"\n", {OUT: answer.extend, ERR: self._said.extend},
                            time.monotonic() + ANSWER_S, lambda: "" if answer.endswith(b"\n") else None)
        if not answer.startswith(question + b" "):
            return False
        self.oom_kills = int(answer[len(question):])
        return True

    def close(self) -> None:
        self._wire.close()
