"""Which verifier judges what. Names are task kinds; others add theirs by an entry point of group `headrace.verifiers`.

Verifiers are imported when first asked for and kept: they hold no state between verdicts.
"""

from __future__ import annotations

import difflib
import functools
import importlib
from importlib.metadata import entry_points

from schemas.errors import NotFoundError
from tasks.task import Task
from verifiers.verifier import Verifier

BUILTIN = {
    "coding": "verifiers.coding:CodingVerifier",
    "documents": "verifiers.documents:DocumentsVerifier",
    "scene": "verifiers.scene:SceneVerifier",
    "tools": "verifiers.tools:ToolsVerifier",
}
GROUP = "headrace.verifiers"


def verifier_for(task: Task) -> Verifier:
    """The verifier whose score is the task's reward."""
    return get_verifier(task.reward_verifier)


@functools.cache
def get_verifier(name: str) -> Verifier:
    """Raises NotFoundError with a suggestion."""
    if name in BUILTIN:
        module, _, attribute = BUILTIN[name].partition(":")
        made: Verifier = getattr(importlib.import_module(module), attribute)()
        return made
    for point in entry_points(group=GROUP, name=name):
        added: Verifier = point.load()()
        return added
    close = difflib.get_close_matches(name, BUILTIN, n=1)
    raise NotFoundError("no verifier has this name", value=name,
                        hint=f"did you mean `{close[0]}`?" if close else f"there are: {', '.join(sorted(BUILTIN))}")
