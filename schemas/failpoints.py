"""Failpoints: places where a test kills or pauses the process, to prove what survives.

`HEADRACE_FAILPOINT=sink:before_write` kills at the first hit of that name, `sink:before_write@3` at the third, and
`sink:before_write@3!stop` pauses there until somebody continues the process. Unset, a failpoint costs one look-up.
"""

from __future__ import annotations

import os
import signal

VARIABLE = "HEADRACE_FAILPOINT"
_STOP = "!stop"
_hits = 0


def hit(name: str) -> None:
    """Die here, without any clean-up, if the environment names this place."""
    armed = os.environ.get(VARIABLE)
    if armed is not None and _due(armed.removesuffix(_STOP), name):
        os.kill(os.getpid(), signal.SIGSTOP if armed.endswith(_STOP) else signal.SIGKILL)


def _due(armed: str, name: str) -> bool:
    global _hits
    wanted, _, count = armed.partition("@")
    if wanted != name:
        return False
    _hits += 1
    return _hits == int(count or 1)
