"""Verifiers in a Python file that the user names (`--verifier FILE.py`, setting `verifiers`).

Every class of the file with a `name` and a `verify` is one. Its name is the task kind, or the `verifier` of a task,
that it judges; a name of ours is taken over, since the user asked for it. Unless the class says so itself, its digest
is that of the file's bytes and its name, so an edited file is another verifier.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import cast

from schemas.errors import ConfigError, HeadraceError
from schemas.ids import digest
from tasks.task import Submission, Task
from verifiers.verifier import Context, Score, Verifier

SEPARATOR = ","


def split(setting: str) -> list[Path]:
    """The files that the setting `verifiers` names."""
    return [Path(part.strip()) for part in setting.split(SEPARATOR) if part.strip()]


def load(path: Path) -> dict[str, Verifier]:
    """The verifiers of one file by name. Runs the file: it is the user's own code. Raises ConfigError."""
    try:
        source = path.read_bytes()
    except OSError as wrong:
        raise ConfigError(f"verifier file cannot be read ({wrong.strerror})", where=str(path)) from None
    module = _run(path)
    found: dict[str, Verifier] = {}
    for value in vars(module).values():
        if inspect.isclass(value) and value.__module__ == module.__name__ and _is_verifier(value):
            made = cast(Verifier, value())
            found[made.name] = made if hasattr(made, "digest") else _OfFile(made, source)
    if not found:
        raise ConfigError("no verifier in this file", where=str(path),
                          hint="define a class with `name = \"...\"` and `verify(self, submission, task, context)`")
    return found


def _run(path: Path) -> ModuleType:
    name = f"headrace_verifier_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError("not a Python file", where=str(path), hint="a verifier file ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except HeadraceError:
        raise
    except Exception as wrong:
        raise ConfigError(f"verifier file does not load ({type(wrong).__name__}: {wrong})", where=str(path)) from None
    return module


def _is_verifier(value: type) -> bool:
    return isinstance(getattr(value, "name", None), str) and callable(getattr(value, "verify", None))


class _OfFile:
    """A verifier whose author left the digest to us."""

    def __init__(self, inner: Verifier, source: bytes) -> None:
        self.inner, self.name = inner, inner.name
        self.digest = digest(digest(source).encode() + inner.name.encode())

    def verify(self, submission: Submission, task: Task, context: Context) -> Score:
        return self.inner.verify(submission, task, context)
