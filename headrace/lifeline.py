"""Child processes of ours die with their parent, whatever killed it, and leave Ctrl-C to it."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping

from schemas.lifeline import die_with_parent

PARENT_VARIABLE = "_HEADRACE_PARENT"


def child_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Environment for a child that calls `attach` when it starts."""
    return {**os.environ, **extra, PARENT_VARIABLE: str(os.getpid())}


def attach() -> None:
    """Called first thing in every process; does nothing in one that was not started by a supervisor."""
    parent = os.environ.pop(PARENT_VARIABLE, "")
    if not parent:
        return
    die_with_parent(lambda pid: pid == int(parent))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
