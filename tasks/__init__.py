"""What a task is, the built-in sets and the loaders. Hidden checks are data; terminal predicates are named."""

from __future__ import annotations

from pathlib import Path

TOOLBOX_MOUNT = "/tools"


def toolbox_path() -> Path:
    """The folder of small executables that episodes see read-only at `/tools`."""
    return Path(__file__).parent / "toolbox"
