"""Runs a module as an ordinary user without any capability: `python -m tests.unprivileged pytest …`.

Where we are root that is user 12345, in a mount namespace in which folders that only root may pass are replaced by ones
that hold just what is needed: the interpreter and the repository. Where we are not root it is us.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

USER = "12345"
REPOSITORY = Path(__file__).resolve().parent.parent
_AS_USER = """
set -e
stage=$(mktemp -d) && mount -t tmpfs none "$stage"
wanted=$1 && shift
for path in $wanted; do mkdir -p "$stage$path" && mount --rbind "$path" "$stage$path"; done
for path in $wanted; do
    top=/$(echo "$path" | cut -d/ -f2)
    [ -e "$top/.replaced" ] || { mount -t tmpfs -o mode=0755 none "$top" && touch "$top/.replaced"; }
    mkdir -p "$path" && mount --rbind "$stage$path" "$path"
done
exec setpriv --reuid USER --regid USER --clear-groups --bounding-set=-all --no-new-privs "$@"
""".replace("USER", USER)


def command_as_user(command: Sequence[str]) -> list[str]:
    if os.geteuid():
        return list(command)
    hidden = [str(path) for path in (Path(sys.base_prefix).resolve(), REPOSITORY) if not _passable(path)]
    return ["unshare", "--mount", "sh", "-c", _AS_USER, "sh", " ".join(hidden), *command]


def environment(**more: str) -> Mapping[str, str]:
    return {**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONDONTWRITEBYTECODE": "1", **more}


def _passable(path: Path) -> bool:
    return all(parent.stat().st_mode & 0o001 for parent in (path, *path.parents))


def main() -> int:
    """Whatever is written goes into a temporary folder; the repository is read."""
    folder = Path(tempfile.mkdtemp(prefix="headrace-unprivileged-"))
    folder.chmod(0o777)
    command = [sys.executable, "-m", *sys.argv[1:]]
    if sys.argv[1] == "pytest":
        command += ["-p", "no:cacheprovider", f"--basetemp={folder}/pytest"]
    try:
        return subprocess.run(command_as_user(command), cwd=REPOSITORY,
                              env=environment(HOME=str(folder), TMPDIR=str(folder)), check=False).returncode
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
