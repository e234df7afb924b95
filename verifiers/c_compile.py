"""Compiles C in the sandbox; the compiler's warnings are its findings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sandboxes.sandbox import Sandbox
from schemas.errors import UnavailableError

BINARY = "/tmp/program"
SHARED = ("-shared", "-fPIC")
_C = ("gcc", "-std=gnu17", "-O2", "-Wall", "-Wextra", "-fdiagnostics-color=never")
_NO_COMPILER = 127
_SHOWN, _FINDINGS = 300, 100


def compile_c(sandbox: Sandbox, path: str, deadline_s: float, options: Sequence[str] = ()) -> dict[str, Any]:
    """Makes BINARY; `compiles`, `findings` as `line: what`, and the `error` of what does not compile."""
    ran = sandbox.exec([*_C, *options, "-o", BINARY, f"./{path}", "-lm"], deadline_s=max(1.0, deadline_s))
    text = ran.stderr.decode(errors="replace")
    if ran.exit_code == _NO_COMPILER:
        raise UnavailableError("C cannot be compiled: the sandbox has no gcc", hint="install gcc on this machine")
    return {"compiles": ran.exit_code == 0, "findings": _warnings(text),
            **({} if ran.exit_code == 0 else {"error": text[:2000] or "the compiler did not end well"})}


def findings_of(sandbox: Sandbox, seed: bytes) -> list[str]:
    """Warnings about a source that is the task's own."""
    ran = sandbox.exec([*_C, "-fsyntax-only", "-xc", "-"], stdin=seed, deadline_s=10.0) if seed.strip() else None
    return _warnings(ran.stderr.decode(errors="replace")) if ran else []


def _warnings(text: str) -> list[str]:
    found = []
    for line in text.splitlines():
        place, mark, what = line.partition(" warning: ")
        if mark:
            found.append(f"{[*place.split(':'), '', '0'][1]}: {what}"[:_SHOWN])
    return found[:_FINDINGS]
