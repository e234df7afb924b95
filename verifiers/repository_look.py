"""Runs inside the sandbox before any code of the submission does: what was done to the seed that a reader would object
to, and files that take test runs over. Standard library alone."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import stat
import sys
from collections.abc import Iterator
from typing import Any

from verifiers import candidate_runner

FILES_LIMIT, SIZE_LIMIT = 20_000, 1 << 20
_TAKERS = re.compile(r"(^|/)(conftest\.py|pytest\.ini|\.pytest\.ini|tox\.ini|(site|user)customize\.py|[^/]+\.pth"
                     r"|(_?pytest|pluggy|unittest|builtins)(\.py|/__init__\.py)|[^/]+\.(dist|egg)-info/entry_points\.txt"
                     r"|[^/]+\.pyc)$")
_SILENCED = re.compile(rb"#\s*(noqa|type:\s*ignore|pylint:\s*disable|pragma:\s*no cover)")


def main() -> None:
    request = json.loads(sys.stdin.buffer.read())
    seed = {name: base64.b64decode(data) for name, data in request["seed"].items()}
    sys.stdout.write(json.dumps(look(seed, frozenset(request["tests"]))))


def look(seed: dict[str, bytes], tests: frozenset[str]) -> dict[str, Any]:
    """`takers`: files new or changed; `tests`: test files changed or linked; findings before and after."""
    takers, touched = [], []
    before = sum(len(findings(name, data)) for name, data in seed.items() if name not in tests)
    after: list[str] = []
    broken = []
    for name, data in _files():
        changed = data is None or (hashlib.sha256(data).digest() != hashlib.sha256(seed[name]).digest()
                                   if name in seed else True)
        if name in tests:
            touched += [name] if changed else []
            continue
        if changed and _TAKERS.search(name):
            takers.append(name)
        if data is not None:
            after += (f"{name}:{finding}" for finding in findings(name, data))
            if changed and name.endswith(".py") and not candidate_runner.look_at(data)["compiles"]:
                broken.append(name)
    return {"takers": sorted(takers), "tests": sorted(touched), "before": before, "after": len(after),
            "findings": sorted(after)[:50], "broken": sorted(broken)}


def findings(name: str, data: bytes) -> list[str]:
    if not name.endswith(".py"):
        return []
    said = candidate_runner.look_at(data)
    found = list(said["findings"]) if said["compiles"] else ["does not compile"]
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
