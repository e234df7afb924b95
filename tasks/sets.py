"""The built-in task sets by name. A set is made when it is asked for."""

from __future__ import annotations

from collections.abc import Callable

from tasks.task import Task

TRAINING_TASKS = 64


def builtin_sets() -> dict[str, Callable[[], list[Task]]]:
    return {"tools": _tools, "tools-heldout": _heldout, "coding": _coding, "documents": _documents, "scene": _scene,
            "math": _math, "terminal": _terminal}


def _tools() -> list[Task]:
    from tasks.tools import training_tasks

    return training_tasks(seed=0, step=0, count=TRAINING_TASKS)


def _heldout() -> list[Task]:
    from tasks.tools import heldout_tasks

    return heldout_tasks()


def _coding() -> list[Task]:
    from tasks.coding import coding_tasks

    return coding_tasks()


def _documents() -> list[Task]:
    from tasks.documents import documents_tasks

    return documents_tasks()


def _scene() -> list[Task]:
    from tasks.scene import scene_tasks

    return scene_tasks()


def _math() -> list[Task]:
    from tasks.math import math_tasks

    return math_tasks()


def _terminal() -> list[Task]:
    from tasks.terminal_set import terminal_tasks

    return terminal_tasks()
