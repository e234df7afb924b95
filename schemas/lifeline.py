"""Processes of ours die with their parent, whatever killed it: no crash leaves an orphan that goes on writing."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


def die_with_parent(started_us: Callable[[int], bool]) -> None:
    """The kernel kills this process when its parent ends. Called first thing.

    `started_us` says whether a process id is our starter's: it may have died before the kernel knew of us, and then
    somebody else is our parent by now. Does nothing where the kernel cannot do it.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if not started_us(os.getppid()):
        os._exit(1)
