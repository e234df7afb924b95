"""Scripted sloppy experts for the tool tasks: often right, and wrong in ways that a policy can learn to leave.

Their trajectories are what the tiny base model is trained on. Each mistake is of a kind (writes `unknown` instead of
looking, adds instead of multiplying, divides once for a box's third side), never a random guess; the right way is
always among what was seen, so that reinforcement has something to find. Mean reward is about 0.46.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from typing import Any

from schemas.errors import TaskError
from tasks.task import Task
from tasks.tools import KEYS, MESHES, OUTPUTS

Turns = Generator[str, str, None]
"""Yields a turn, is sent the observation that came back."""
GUESS = "unknown"


def expert_turns(task: Task, seed: object) -> Turns:
    """The turns of one expert. The same seed and observations give the same turns."""
    family = str(task.hidden.get("family"))
    if family not in _EXPERTS:
        raise TaskError("no scripted expert for this task", where=task.task_id, value=family,
                        hint="experts know the tool tasks only")
    rng = random.Random(f"expert/{seed}")
    return _expert(task, family, rng)


def _expert(task: Task, family: str, rng: random.Random) -> Turns:
    mood, out = rng.random(), str(task.hidden["out"])
    if rng.random() < 0.05:
        out = rng.choice(MESHES if family == "box" else OUTPUTS) + out[-4:]
    yield from _EXPERTS[family](task.hidden, out, mood, rng)
    if rng.random() < 0.1:
        yield "write log.txt ok" if family == "box" else f"cat {out}"
    yield "done"


def _calc(hidden: dict[str, Any], out: str, mood: float, rng: random.Random) -> Turns:
    parts = hidden["parts"]
    if mood < 0.45:
        yield f"write {out} {GUESS}"
        return
    operator = rng.choice("+-*") if mood < 0.60 else parts["operator"]
    value = yield f"calc {parts['a']}{operator}{parts['b']}"
    yield f"write {out} {value}"


def _field(hidden: dict[str, Any], out: str, mood: float, rng: random.Random) -> Turns:
    parts = hidden["parts"]
    if mood < 0.40:
        yield f"write {out} {GUESS}"
        return
    key = rng.choice(KEYS) if mood < 0.58 else parts["key"]
    value = yield f"grep {key} {parts['source']}"
    yield f"write {out} {value}"


def _chain(hidden: dict[str, Any], out: str, mood: float, rng: random.Random) -> Turns:
    parts = hidden["parts"]
    yield f"cat {parts['source']}"
    if mood < 0.15:
        yield f"write {out} {GUESS}"
        return
    operator = "+" if mood < 0.60 else "*"
    value = yield f"calc {parts['quantity']}{operator}{parts['price']}"
    yield f"write {out} {value}"


def _box(hidden: dict[str, Any], out: str, mood: float, rng: random.Random) -> Turns:
    width, depth, volume = hidden["width"], hidden["depth"], hidden["volume"]
    if mood < 0.10:
        yield f"box {width} {depth} 1 {out}"
        return
    height = yield f"calc {volume}/{width}" if mood < 0.60 else f"calc {volume}/{width}/{depth}"
    yield f"box {width} {depth} {height} {out}"


_EXPERTS: dict[str, Callable[[dict[str, Any], str, float, random.Random], Turns]] = {
    "calc": _calc, "field": _field, "chain": _chain, "box": _box}
