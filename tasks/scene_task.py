"""What all scene tasks share: their rules, their shape, and the simplest of scripts."""

from __future__ import annotations

from typing import Any

from tasks.scripts import PROTOCOL, TOOLS, done, write_file
from tasks.task import Task

RULES = "The lowest corner is the origin; the surface is closed and its faces point outward. Lengths are millimetres."


def scene_task(name: str, path: str, statement: str, hidden: dict[str, Any], reference: list[str], wrong: list[str],
               partial: list[str], difficulty: float) -> Task:
    return Task(
        task_id=f"scene-{name}", kind="scene", set="scene", prompt=f"{statement} {RULES}\n\n{PROTOCOL}", tools=TOOLS,
        hidden={"mesh": path, **hidden}, reference=reference, variants={"wrong": wrong, "partial": partial},
        difficulty=difficulty, expected_duration_s=1.0)


def written(path: str, content: str) -> list[str]:
    return [write_file(path, content), done("written")]
