"""Task sets of others, read from their files. Broken input raises TaskError with file, place, value and a hint."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from schemas.errors import TaskError
from tasks.task import Task

Importer = Callable[[str | Path], list[Task]]
_MODULES = {name: f"tasks.importers.{name}" for name in (
    "jsonl",
    "humaneval", "gsm8k", "invoices", "tatqa", "harbor", "terminal_bench", "bfcl", "workplace", "contest",
    "swe")}


_FOLDERS = ("harbor", "terminal_bench")
"""Formats of which a folder may hold many tasks, each for itself."""


class _Importers(Mapping[str, Importer]):
    """Importers by format; each module is imported when it is asked for."""

    def __getitem__(self, name: str) -> Importer:
        load: Importer = importlib.import_module(_MODULES[name]).load
        return load

    def __iter__(self) -> Iterator[str]:
        return iter(_MODULES)

    def __len__(self) -> int:
        return len(_MODULES)


IMPORTERS: Mapping[str, Importer] = _Importers()


def load_tasks(format_name: str, path: str | Path, refused: list[TaskError] | None = None) -> list[Task]:
    """The tasks of a file in a named format. Of a folder of tasks those that cannot be taken go to `refused`, as long
    as one can; without it the first of them is raised."""
    if format_name not in IMPORTERS:
        close = difflib.get_close_matches(format_name, IMPORTERS, n=1)
        hint = f"did you mean `{close[0]}`?" if close else f"known formats: {', '.join(IMPORTERS)}"
        raise TaskError("unknown task format", value=format_name, hint=hint)
    if format_name in _FOLDERS:
        from tasks.importers import harbor

        return harbor.load(path, refused)
    return IMPORTERS[format_name](path)
