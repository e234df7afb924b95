"""The Python that commands find as `python3`: the one that runs us, whatever else the host has on its PATH."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from typing import NamedTuple

FOLDER = "/opt/python"
"""Inside a sandbox; its `bin` comes first on the PATH and holds nothing but links to the interpreter."""
NAMES = ("python", "python3", f"python3.{sys.version_info.minor}")
# Below these a sandbox has mounts of its own.
_TAKEN = ("/workspace", "/tmp", "/proc", "/dev", "/etc", FOLDER)


class Interpreter(NamedTuple):
    """`source` is mounted at `target` (both empty when it lies in /usr, which every sandbox has)."""

    source: str
    target: str
    executable: str
    """Path of the interpreter inside."""


@functools.cache
def interpreter() -> Interpreter:
    base = Path(sys.base_prefix).resolve()
    found = base / "bin" / NAMES[-1]
    executable = Path(os.path.realpath(found if found.exists() else sys.executable))
    if executable.is_relative_to("/usr"):
        return Interpreter("", "", str(executable))
    # At its own path: a shared build finds its library, and a script its interpreter, by absolute path.
    taken = any(base.is_relative_to(folder) for folder in _TAKEN)
    target = Path("/opt/python-base") if taken else base
    inside = target / executable.relative_to(base) if executable.is_relative_to(base) else executable
    return Interpreter(str(base), str(target), str(inside))
