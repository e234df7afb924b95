"""Child processes of ours die with their parent, whatever killed it, and leave Ctrl-C to it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Mapping

PARENT_VARIABLE = "_HEADRACE_PARENT"
_PR_SET_PDEATHSIG = 1


def child_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Environment for a child that calls `attach` when it starts."""
    return {**os.environ, **extra, PARENT_VARIABLE: str(os.getpid())}


def attach() -> None:
    """Called first thing in every process; does nothing in one that was not started by a supervisor."""
    parent = os.environ.pop(PARENT_VARIABLE, "")
    if not parent or sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):
        os._exit(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
