"""Which verifier judges what. Names are task kinds; others add theirs by an entry point of group `headrace.verifiers`,
or by a file (setting `verifiers`), which comes first.

Verifiers are imported when first asked for and kept: they hold no state between verdicts.
"""

from __future__ import annotations

import difflib
import functools
import importlib
from importlib.metadata import entry_points

from schemas.errors import NotFoundError
from tasks.task import Task
from verifiers import files
from verifiers.verifier import Verifier

BUILTIN = {
    "calls": "verifiers.tools_calls:CallsVerifier",
    "coding": "verifiers.coding:CodingVerifier",
    "composite": "verifiers.composite:CompositeVerifier",
    "documents": "verifiers.documents:DocumentsVerifier",
    "judge": "verifiers.judge_model:JudgeVerifier",
    "math": "verifiers.math:MathVerifier",
    "scene": "verifiers.scene.verdict:SceneVerifier",
    "terminal": "verifiers.terminal.verifier:TerminalVerifier",
    "tools": "verifiers.tools:ToolsVerifier",
}
GROUP = "headrace.verifiers"
_of_files: dict[str, Verifier] = {}


def use_files(setting: str) -> list[str]:
    """Take on the verifiers of the files that the setting names; their names. Raises ConfigError."""
    found: dict[str, Verifier] = {}
    for path in files.split(setting):
        found |= files.load(path)
    _of_files.clear()
    _of_files.update(found)
    get_verifier.cache_clear()
    return sorted(found)


def verifier_for(task: Task) -> Verifier:
    """The verifier whose score is the task's reward."""
    return get_verifier(task.reward_verifier)


def is_ours(name: str) -> bool:
    """Whether the verifier of this name, if there is one, is of this package."""
    return name not in _of_files and (name in BUILTIN or not name)


def names() -> list[str]:
    """Of all verifiers that there are."""
    return sorted({*_of_files, *BUILTIN, *(point.name for point in entry_points(group=GROUP))})


@functools.cache
def get_verifier(name: str) -> Verifier:
    """Raises NotFoundError with a suggestion."""
    if name in _of_files:
        return _of_files[name]
    if name in BUILTIN:
        module, _, attribute = BUILTIN[name].partition(":")
        made: Verifier = getattr(importlib.import_module(module), attribute)()
        return made
    for point in entry_points(group=GROUP, name=name):
        added: Verifier = point.load()()
        return added
    known = [*_of_files, *BUILTIN]
    close = difflib.get_close_matches(name, known, n=1)
    raise NotFoundError("no verifier has this name", value=name,
                        hint=f"did you mean `{close[0]}`?" if close else f"there are: {', '.join(sorted(known))}")
