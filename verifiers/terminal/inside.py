"""Runs inside the verifier's sandbox, before and after the tests and never beside code of the submission: makes places,
sets aside files that would take the tests over, looks at files, and reads what the tests left.

Standard library only. One request as JSON on stdin, one answer as JSON on stdout.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

SEARCH_FILES, SEARCH_BYTES = 20_000, 1 << 20
NAMES_LIMIT = 200
_ENDINGS = (".py", ".pyc", ".so")
HASH_LIMIT = 64 << 20
SETTLE_S = 0.5
_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link", stat.S_IFIFO: "pipe",
          stat.S_IFSOCK: "socket", stat.S_IFCHR: "device", stat.S_IFBLK: "device"}


def main() -> None:
    request = json.loads(sys.stdin.buffer.read())
    done: dict[str, Callable[..., Any]] = {
        "prepare": prepare, "search": search, "look": look, "collect": collect, "listen": listen}
    answer = done[request.pop("do")](**request)
    sys.stdout.write(json.dumps(answer))


def prepare(folders: list[str], files: dict[str, str], aside: dict[str, list[str]]) -> list[str]:
    """Make folders and files of ours; rename in each folder of `aside`, which its owner may enter from then on, what
    Python would load as one of these modules."""
    for folder in folders:
        os.makedirs(folder, exist_ok=True)
    for path, text in files.items():
        with open(path, "w") as file:
            file.write(text)
    moved = []
    for folder, names in aside.items():
        os.chmod(folder, os.stat(folder).st_mode | 0o700)
        modules = frozenset(names)
        for name in sorted(os.listdir(folder)):
            path = os.path.join(folder, name)
            if name.partition(".")[0] in modules and _is_module(path):
                _set_aside(path)
                moved.append(path)
    return moved


def _is_module(path: str) -> bool:
    """Source, bytecode or a library, or a folder with one of these that makes it a package."""
    if path.endswith(_ENDINGS):
        return True
    return os.path.isdir(path) and os.access(path, os.R_OK) and any(
        name.startswith("__init__.") and name.endswith(_ENDINGS) for name in os.listdir(path))


def _set_aside(path: str) -> None:
    number = 0
    while os.path.lexists(target := f"{path}.set-aside-{number}"):
        number += 1
    os.rename(path, target)


def search(folder: str, texts: list[str]) -> list[str]:
    """Plain files whose beginning holds one of the texts."""
    found: list[str] = []
    seen, wanted = 0, [text.encode() for text in texts]
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            seen += 1
            if seen > SEARCH_FILES:
                return sorted(found)
            if stat.S_ISREG(os.lstat(path).st_mode) and os.access(path, os.R_OK):
                with open(path, "rb") as file:
                    data = file.read(SEARCH_BYTES)
                    if any(text in data for text in wanted):
                        found.append(os.fsencode(path).decode(errors="replace"))
    return sorted(found)


def look(paths: list[str], limit_bytes: int) -> dict[str, Any]:
    return {path: _look(path, limit_bytes) for path in paths}


def _look(path: str, limit_bytes: int) -> dict[str, Any]:
    try:
        found = os.lstat(path)
    except (OSError, ValueError):
        return {"kind": "absent"}
    kind = _KINDS.get(stat.S_IFMT(found.st_mode), "other")
    said: dict[str, Any] = {"kind": kind, "mode": f"{stat.S_IMODE(found.st_mode):04o}", "uid": found.st_uid,
                            "gid": found.st_gid}
    if kind == "link":
        said["target"] = os.readlink(path)
    elif kind == "folder":
        names = sorted(os.listdir(path)) if os.access(path, os.R_OK) else []
        said["names"] = names if len(names) <= NAMES_LIMIT else f"{len(names)} names"
    elif kind == "file":
        said["size"] = found.st_size
        said |= _content(path, found.st_size, limit_bytes)
    return said


def _content(path: str, size: int, limit_bytes: int) -> dict[str, Any]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as wrong:
        return {"problem": wrong.strerror}
    with open(descriptor, "rb") as file:
        data = file.read(limit_bytes)
        said: dict[str, Any] = {"data": base64.b64encode(data).decode()}
        if size <= HASH_LIMIT:
            digest = hashlib.sha256(data)
            while block := file.read(1 << 20):
                digest.update(block)
            said["sha256"] = digest.hexdigest()
        return said


def collect(folder: str, names: list[str], limit_bytes: int) -> dict[str, Any]:
    """Files that must be plain ones of this very folder; what is not there is left out."""
    try:
        place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as wrong:
        return {name: {"problem": f"is out of reach: its folder is gone ({wrong.strerror})"} for name in names[:1]}
    return {name: entry for name in names if (entry := _collect(place, name, limit_bytes)) is not None}


def _collect(place: int, name: str, limit_bytes: int) -> dict[str, Any] | None:
    try:
        found = os.stat(name, dir_fd=place, follow_symlinks=False)
    except FileNotFoundError:
        return None
    except OSError as wrong:
        return {"problem": f"cannot be read ({wrong.strerror})"}
    if not stat.S_ISREG(found.st_mode):
        return {"problem": f"is a {_KINDS.get(stat.S_IFMT(found.st_mode), 'thing')}, not a plain file"}
    if found.st_nlink > 1:
        return {"problem": "has a second name elsewhere (hard link)"}
    if found.st_size > limit_bytes:
        return {"problem": f"has {found.st_size} bytes, over the limit of {limit_bytes}"}
    try:
        with open(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=place), "rb") as file:
            return {"data": base64.b64encode(file.read(limit_bytes)).decode()}
    except OSError as wrong:
        return {"problem": f"cannot be read ({wrong.strerror})"}


def listen(start: str, cwd: str, port: int | None, name: str | None, deadline_s: float) -> dict[str, Any]:
    """Start what the task names, and wait until it listens on the port, or a process bears the name and stays: one that
    ends at once was seen by luck."""
    end = time.monotonic() + deadline_s
    with open(os.devnull, "r+b") as nothing:
        if start:
            subprocess.Popen(["/bin/sh", "-c", start], cwd=cwd, stdin=nothing, stdout=nothing, stderr=nothing,
                             start_new_session=True)
    while True:
        if (port is None or _listens(port)) and (name is None or _stays(name)):
            return {"up": True}
        if time.monotonic() >= end:
            return {"up": False}
        time.sleep(0.02)


def _listens(port: int) -> bool:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table) as file:
                rows = [line.split() for line in file][1:]
        except OSError:
            continue
        if any(row[3] == "0A" and int(row[1].rpartition(":")[2], 16) == port for row in rows):
            return True
    return False


def _stays(name: str) -> bool:
    found = _bearers(name)
    if found:
        time.sleep(SETTLE_S)
    return not found.isdisjoint(_bearers(name))


def _bearers(name: str) -> set[int]:
    """Process ids of those that bear the name and have not ended."""
    found = set()
    for pid in os.listdir("/proc"):
        if pid.isdigit() and int(pid) != os.getpid():
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    words = file.read().split(b"\0")
                with open(f"/proc/{pid}/stat", "rb") as file:
                    head, _, rest = file.read().rpartition(b")")
            except OSError:
                continue
            named = name.encode() in (head.partition(b"(")[2], os.path.basename(words[0]))
            if named and rest.split()[0] not in (b"Z", b"X"):
                found.add(int(pid))
    return found
