"""Read-only mounts of a sandbox (tools, hidden tests, data), and further paths of its workspace."""

from __future__ import annotations

import os
import posixpath
import stat
from pathlib import Path

from sandboxes.interpreter import interpreter
from sandboxes.sandbox import SandboxSpec
from schemas.errors import SandboxError

_TAKEN = ("/workspace", "/tmp", "/proc", "/dev", "/etc", "/usr", "/bin", "/sbin", "/lib", "/lib64")
_LOOKED_AT = 5000
"""Larger folders are taken to be data that was meant to be read."""

Mount = tuple[str, str, bool]
"""Path inside, path on the host, and whether it must be copied because the sandbox's user could not read it."""


def mounts_of(spec: SandboxSpec, other_user: bool) -> list[Mount]:
    """The mounts in the order in which they nest. `other_user`: commands run as another user than we are.

    Raises SandboxError (kind `sandbox_start`) for a path that cannot be mounted, with what is wrong about it.
    """
    found = []
    for inside, source in sorted(spec.readonly.items()):
        clean = posixpath.normpath(inside)
        if not inside.startswith("/") or clean != inside.rstrip("/") or _is_taken(clean):
            raise SandboxError("a read-only mount needs a clean absolute path outside of the sandbox's own folders",
                               kind="sandbox_start", value=inside, hint="for example /tools")
        path = Path(source).resolve()
        if not path.exists():
            raise SandboxError("no such file or folder to mount read-only", kind="sandbox_start", where=inside,
                               value=str(source))
        found.append((clean, str(path), other_user and not _everyone_reads(path)))
    return found


def aliases_of(spec: SandboxSpec) -> list[str]:
    """Where the workspace is seen too. Raises SandboxError (kind `sandbox_start`) for a path that cannot be."""
    mounts = [*spec.readonly, *filter(None, [interpreter().target])]
    for alias in spec.aliases:
        clean = alias.startswith("/") and posixpath.normpath(alias) == alias
        if not clean or _is_taken(alias) or any(_nest(alias, other) for other in mounts):
            raise SandboxError("the workspace cannot be seen at this path", kind="sandbox_start", value=alias,
                               hint="a clean absolute path outside of the sandbox's own folders, for example /app")
    return list(spec.aliases)


def _nest(one: str, other: str) -> bool:
    one, other = one.rstrip("/") + "/", other.rstrip("/") + "/"
    return one.startswith(other) or other.startswith(one)


def _is_taken(path: str) -> bool:
    return path == "/" or any(path == taken or path.startswith(taken + "/") for taken in _TAKEN)


def _everyone_reads(path: Path) -> bool:
    todo, seen = [os.fspath(path)], 0
    while todo and seen < _LOOKED_AT:
        name = todo.pop()
        mode = os.lstat(name).st_mode
        seen += 1
        if stat.S_ISDIR(mode):
            if mode & 0o005 != 0o005:
                return False
            todo += [f"{name}/{child}" for child in os.listdir(name)]
        elif stat.S_ISREG(mode) and not mode & 0o004:
            return False
    return True
