"""Sessions of the backend `process`: the agent of a sandbox, run beside us as we are, for a shell and a Python.

A session's `state` says /workspace where it means the workspace, so that it holds for another sandbox.
"""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Callable, Mapping

from sandboxes import script
from sandboxes.agent import Agent
from sandboxes.sandbox import ExecResult
from sandboxes.session import Dialogue, Kind
from sandboxes.spawner.ends import Ends
from sandboxes.workspace import INSIDE

_ABOVE = 16
_DEFAULTED = [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGTERM, signal.SIGXFSZ]


def start_agent(folder: str, limits: str, variables: Mapping[str, str], output_kb: int) -> tuple[Agent, int]:
    """An agent in a process group of its own, and its process id. Raises OSError."""
    ends = Ends()
    # Above all numbers that the agent is given its own at.
    held = [(fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _ABOVE), number) for descriptor, number in ends.theirs]
    actions: list[tuple[int, ...]] = [(os.POSIX_SPAWN_DUP2, descriptor, number) for descriptor, number in held]
    null: tuple[int, int, str, int, int] = (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_RDWR, 0)
    try:
        pid = os.posix_spawn("/bin/sh", ["sh"], variables, file_actions=[null, *actions], setpgroup=0,
                             setsigdef=_DEFAULTED)
    except BaseException:
        for descriptor in ends.ours:
            os.close(descriptor)
        raise
    finally:
        ends.handed_over()
        for descriptor, _ in held:
            os.close(descriptor)
    return Agent(ends.ours, output_kb, script.ready(folder, limits.encode())), pid


class ProcessSession:
    """A shell or a Python that stays. It ends with its sandbox."""

    def __init__(self, kind: Kind, state: bytes, work: str, own: Mapping[str, str],
                 converse: Callable[[Dialogue, str, float], ExecResult]) -> None:
        self.kind: Kind = kind
        self._work, self._converse = os.fsencode(work), converse
        brought = state.replace(INSIDE.encode(), self._work)
        if brought:  # What is this sandbox's own is not brought by another's.
            brought += b"\nexport " + b" ".join(name.encode() + b"=" + script.quote(own[name]) for name in own) + b"\n"
        self._dialogue = Dialogue(kind, brought)

    @property
    def lives(self) -> int:
        return self._dialogue.lives

    @property
    def state(self) -> bytes:
        return self._dialogue.state.replace(self._work, INSIDE.encode())

    def run(self, text: str, *, deadline_s: float = 30.0) -> ExecResult:
        if refusal := script.session_refusal(self.kind, text):
            return refusal
        return self._converse(self._dialogue, text, deadline_s)
