"""What every command finds in its environment, in every backend: fixed, so that output does not depend on the host."""

from __future__ import annotations

from collections.abc import Mapping

from sandboxes.interpreter import FOLDER
from sandboxes.workspace import INSIDE

BASE = {
    "HOME": INSIDE,
    "USER": "sandbox",
    "LOGNAME": "sandbox",
    "SHELL": "/bin/sh",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "PYTHONDONTWRITEBYTECODE": "1",
}
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
PATH = f"{FOLDER}/bin:{SYSTEM_PATH}"


def environment_of(extra: Mapping[str, str], path: str) -> dict[str, str]:
    return {**BASE, "PATH": path, **extra}
