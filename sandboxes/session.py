"""Sessions: a shell and a Python that stay, so a tool call costs a round trip and not the start of a process.

What a call leaves behind is there for the next one: the working directory, variables, functions, background jobs.
When the process of a session ends (`exit`, a time-out, a crash, `kill`), the next call gets a new one: of a shell the
working directory and the exported variables come back, of a Python nothing does; `lives` counts them. Other
commands of the sandbox (`exec`) may come in between; while a session lives they do not kill what others started.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from sandboxes import script
from sandboxes.agent import Agent, Run
from sandboxes.control import ANSWER_BYTES

Kind = Literal["shell", "python"]
Answering = Callable[["Dialogue", float], Run]
BEGIN_S = 20.0
# It imports nothing from the workspace, whatever files are called there.
_LOOP = ("import sys; sys.path[:] = filter(None, sys.path)\n"
         + (Path(__file__).parent / "spawner" / "python_session.py").read_text(encoding="utf-8"))
_LENGTH = struct.Struct("<I")


class Dialogue:
    """What is said to the process of a session and what its answers mean. `state` is a script that brings a new
    shell to where the last one was."""

    def __init__(self, kind: Kind, state: bytes = b"") -> None:
        self.kind, self.state = kind, state
        self.lives = 0
        self._calls = 0
        """Of the process that is there: an answer to any but the last was not taken when it was due."""
        self._agent: Agent | None = None

    def begin(self, agent: Agent) -> Run | None:
        """Make sure that the process is there; the run that failed to start it, if one did."""
        if self._agent is agent and self.kind in agent.started:
            return None
        line = script.begin_shell() if self.kind == "shell" else script.begin_python(_LOOP)
        begun = agent.begin(self.kind, line, BEGIN_S)
        if begun.cause:
            return begun
        self._agent = agent
        self._calls = 0
        self.lives += 1
        if self.kind == "shell" and self.state:
            brought = self.say(agent, self.state.decode(errors="surrogateescape"), BEGIN_S)
            return brought if brought.cause else None
        return None

    def say(self, agent: Agent, text: str, deadline_s: float) -> Run:
        """What runs in a session can reach its stream: an answer that is none of ours is the end of the session."""
        raw = os.fsencode(text)
        self._calls += 1
        if self.kind == "shell":
            call = script.shell_call(raw, self._calls)
            return agent.say(self.kind, call, deadline_s, _shell_complete, self._shell_code)
        return agent.say(self.kind, _LENGTH.pack(len(raw)) + raw, deadline_s, _line_complete, self._line_code)

    def _line_code(self, answer: bytes) -> int | None:
        before, ended, last = answer.partition(script.ENDED)
        if ended:
            self._ended()
            return script.exit_code(last)
        return script.exit_code(before, self._calls)

    def _shell_code(self, answer: bytes) -> int | None:
        if script.ENDED in answer:
            return self._line_code(answer)
        code, _, rest = answer.partition(b"\n")
        folder, exports, more = (*rest.split(b"\0", 2), b"")[:3]
        if more or (found := script.exit_code(code + b"\n", self._calls)) is None:
            return None
        if len(answer) < ANSWER_BYTES:  # else its middle is missing
            self.state = b"cd -- " + script.quote(folder) + b" 2>/dev/null\n" + exports
        return found

    def _ended(self) -> None:
        """The process has said that it ends: the next call starts another."""
        if self._agent is not None:
            self._agent.started.pop(self.kind, None)


def _line_complete(answer: bytes) -> bool:
    return answer.endswith(b"\n")


def _shell_complete(answer: bytes) -> bool:
    if script.ENDED in answer:
        return answer.endswith(b"\n")
    return answer.endswith(b"\0") and answer.count(b"\0") >= 2
