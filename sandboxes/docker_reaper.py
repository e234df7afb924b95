"""Labels on containers and volumes, and what is removed by them: what a dead owner left, never another's.

A container ends by itself when its owner ends, as its keeper's input does; this is for what even that cannot reach: a
container that had not started, an engine that was started again. Of another machine's owners, and of homes that we
do not see, only age tells.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Mapping
from pathlib import Path

from sandboxes import reaper
from sandboxes.docker_engine import Engine

OWNER, HOME, HOST, EXPIRES, LEASE = (
    "headrace.owner", "headrace.home", "headrace.host", "headrace.expires", "headrace.lease")
"""The owner's folder and the folder it lies in, the machine, the end of the lease in seconds since 1970, who leases."""
_GRACE_S = 3600.0


def labels(owner: reaper.OwnerFolder, who: str, lease_s: float) -> dict[str, str]:
    return {OWNER: owner.token, HOME: str(owner.path.parent), HOST: os.uname().nodename,
            EXPIRES: f"{time.time() + lease_s:.0f}", LEASE: who}


def reap(engine: Engine) -> int:
    """Remove the containers and volumes of dead owners; how many containers."""
    count = 0
    with engine.told("what dead owners left cannot be looked up"):
        for one in engine.api.containers(all=True, filters={"label": OWNER}):
            if is_dead(one["Labels"]):
                engine.remove(one["Id"])
                count += 1
        for one in engine.api.volumes(filters={"label": OWNER}).get("Volumes") or ():
            if is_dead(one["Labels"]):
                with contextlib.suppress(engine.api_error):  # in use, or already gone
                    engine.api.remove_volume(one["Name"])
    return count


def is_dead(found: Mapping[str, str]) -> bool:
    if found.get(HOST) == os.uname().nodename and Path(found.get(HOME, "")).is_dir():
        return not _may_live(Path(found[HOME], found[OWNER]))
    try:
        return float(found[EXPIRES]) + _GRACE_S < time.time()
    except (KeyError, ValueError):
        return False


def _may_live(folder: Path) -> bool:
    try:
        lock = os.open(folder / reaper.LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:  # another user's, who will have to reap it
        return True
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False
