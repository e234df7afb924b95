"""Runs inside the sandbox before any code of the submission does: what was done to the seed that a reader would object
to, and files that take test runs over. Standard library alone."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import sys
from collections.abc import Iterator
from typing import Any

from verifiers import candidate_runner
from verifiers.signs import signs_in, takes_over

FILES_LIMIT, SIZE_LIMIT = 20_000, 1 << 20
_BROKEN = "does not compile"
_SILENCED = re.compile(rb"#\s*(noqa|type:\s*ignore|pylint:\s*disable|pragma:\s*no cover)")


def main() -> None:
    request = json.loads(sys.stdin.buffer.read())
    sys.stdout.write(json.dumps(look(request["seed"], frozenset(request["tests"]))))


def look(seed: dict[str, str], tests: frozenset[str]) -> dict[str, Any]:
    """`seed`: digests by name. `takers`: files new or changed; `tests`: test files changed, linked or gone; the
    findings and signs of changed files, and those that do not compile."""
    takers, broken = [], []
    touched = [name for name in tests if name in seed and not os.path.lexists(name)]
    after: dict[str, list[str]] = {}
    signs: dict[str, list[str]] = {}
    for name, data in _files():
        changed = data is None or name not in seed or seed[name] != "sha256:" + hashlib.sha256(data).hexdigest()
        if not changed:
            continue
        if name in tests:
            touched.append(name)
            continue
        if takes_over(name, data):
            takers.append(name)
        if data is not None and name.endswith(".py"):
            after[name] = findings(name, data)
            signs[name] = signs_in(data)
            broken += [name] if _BROKEN in after[name] else []
    return {"takers": sorted(takers), "tests": sorted(touched), "findings": after, "signs": signs,
            "broken": sorted(broken)}


def findings(name: str, data: bytes) -> list[str]:
    if not name.endswith(".py"):
        return []
    said = candidate_runner.look_at(data)
    found = list(said["findings"]) if said["compiles"] else [_BROKEN]
    return found + ["silenced"] * len(_SILENCED.findall(data))


def _files() -> Iterator[tuple[str, bytes | None]]:
    """Names and contents of the workspace; None for what is no plain file of a bearable size."""
    seen = 0
    for parent, folders, names in os.walk("."):
        folders[:] = sorted(folder for folder in folders if folder != ".git")
        links = [folder for folder in folders if os.path.islink(os.path.join(parent, folder))]
        for name in sorted([*names, *links]):
            seen += 1
            if seen > FILES_LIMIT:
                return
            path = os.path.join(parent, name)
            found = os.lstat(path)
            data = None
            if stat.S_ISREG(found.st_mode) and found.st_size <= SIZE_LIMIT and os.access(path, os.R_OK):
                with open(path, "rb") as file:
                    data = file.read()
            yield os.fsencode(os.path.relpath(path)).decode(errors="replace"), data
