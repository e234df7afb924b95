"""Verifiers in a Python file that the user names (`--verifier FILE.py`, setting `verifiers`).

Every class of the file with a `name` and a `verify` is one. Its name is the task kind, or the `verifier` of a task,
that it judges; a name of ours is taken over, since the user asked for it. Unless the class says so itself, its digest
is that of its name, the file's bytes and those of every module of the user's that it imports, so an edited file or
helper is another verifier. What is installed or of the standard library is not looked into.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import json
import site
import sys
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from schemas.errors import ConfigError, HeadraceError
from schemas.ids import digest
from tasks.task import Submission, Task
from verifiers.verifier import Context, Score, Verifier

SEPARATOR = ","
_ROOMS = ("schemas", "artifacts", "tasks", "sandboxes", "verifiers")


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
            found[made.name] = made if hasattr(made, "digest") else _OfFile(made, source, _helpers(source))
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


def _helpers(source: bytes) -> dict[str, str]:
    """Digests by name of the user's own modules that a source imports, and they."""
    found: dict[str, str] = {}
    todo = [(source, "")]
    while todo:
        for name in imported(*todo.pop()):
            path = None if name in found else _own_file(name)
            if path is not None:
                data = path.read_bytes()
                todo.append((data, name if path.name == "__init__.py" else name.rpartition(".")[0]))
                found[name] = digest(data)
    return found


def imported(source: bytes, package: str = "") -> set[str]:
    """Every name that may be a module's, at any depth of a source that lies in `package`."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[:len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            found.update((base, *(f"{base}.{alias.name}" for alias in node.names)))
    return found | {name.rpartition(".")[0] for name in found if "." in name} - {""}


def _own_file(name: str) -> Path | None:
    """Of a module that is neither installed, nor of the standard library, nor ours."""
    module: Any = sys.modules.get(name)
    try:
        spec = getattr(module, "__spec__", None) or importlib.util.find_spec(name)
    except Exception:  # What a package does while it is looked into is its own affair.
        return None
    if spec is None or not spec.has_location or not str(spec.origin).endswith(".py"):
        return None
    path = Path(str(spec.origin)).resolve()
    foreign = [*site.getsitepackages(), site.getusersitepackages(), *sysconfig.get_paths().values(), sys.base_prefix]
    foreign += [str(Path(__file__).parent.parent / room) for room in _ROOMS]
    return None if any(path.is_relative_to(Path(folder).resolve()) for folder in foreign) else path


def _is_verifier(value: type) -> bool:
    return isinstance(getattr(value, "name", None), str) and callable(getattr(value, "verify", None))


class _OfFile:
    """A verifier whose author left the digest to us."""

    def __init__(self, inner: Verifier, source: bytes, helpers: dict[str, str]) -> None:
        self.inner, self.name = inner, inner.name
        self.digest = digest(json.dumps([inner.name, digest(source), helpers], sort_keys=True).encode())

    def verify(self, submission: Submission, task: Task, context: Context) -> Score:
        return self.inner.verify(submission, task, context)
