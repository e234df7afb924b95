"""Tool tasks: four families, each solved by a short chain of tools, small enough for a policy of under 1M parameters.

    calc   two numbers in the prompt: calculate, write
    field  a record in a file: grep one field, write
    chain  a record in a file: cat, calculate quantity x price, write
    box    two sides and a volume: divide for the third side, write an OBJ mesh

An instance is drawn from a random generator. One in eight instances is held out: which ones is a property of the
instance alone (a checksum), so no training task is ever a held-out one. The same instance has the same task id.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from functools import cache
from typing import Any

from schemas.errors import TaskError
from schemas.events import Limits
from schemas.ids import stable_id
from tasks.task import Task

FAMILIES = ("calc", "field", "chain", "box")
TOOLS = ["calc", "cat", "grep", "write", "box", "done"]
OUTPUTS, SOURCES, MESHES = ("out", "ans", "res"), ("inv", "bill", "order"), ("part", "box", "model")
KEYS = ("id", "tax", "due")
HELDOUT_ONE_IN = 8
HELDOUT_PER_FAMILY = 64
_WORDS = {"+": "plus", "-": "minus", "*": "times"}
_BOXES = [(w, d, h) for w in range(2, 10) for d in range(2, 10) for h in range(2, 10) if w * d * h < 100]
_LIMITS = Limits(max_turns=6, token_budget=384, wall_clock_s=60.0)


class Instance:
    """One drawn problem, before it is known whether it is held out."""

    def __init__(self, family: str, prompt: str, wanted: dict[str, Any], parts: dict[str, Any],
                 reference: list[str], files: dict[str, str] | None = None) -> None:
        self.family, self.prompt, self.reference, self.files = family, prompt, reference, files or {}
        self.hidden = {"family": family, **wanted, "parts": parts}
        self.key = "\n".join([family, prompt, *(f"{name}={text}" for name, text in self.files.items())])

    @property
    def heldout(self) -> bool:
        return zlib.crc32(self.key.encode()) % HELDOUT_ONE_IN == 0

    def task(self) -> Task:
        return Task(
            task_id=f"tools-{self.family}-{stable_id('tools', self.key)[:12]}", kind="tools",
            set="tools-heldout" if self.heldout else "tools", prompt=self.prompt, dialect="line", tools=TOOLS,
            files={name: text.encode() for name, text in self.files.items()}, limits=_LIMITS, hidden=self.hidden,
            reference=self.reference, expected_duration_s=0.2)


def _calc(rng: random.Random) -> Instance:
    """Every number stays within 0..99, which the tokenizer writes as one token."""
    out, operator = f"{rng.choice(OUTPUTS)}.txt", rng.choice("+-*")
    if operator == "*":
        a, b = rng.randint(2, 9), rng.randint(2, 11)
    else:
        b, a = sorted((rng.randint(5, 50), rng.randint(5, 49)))
    want = {"+": a + b, "-": a - b, "*": a * b}[operator]
    return Instance(
        "calc", f"compute {a} {_WORDS[operator]} {b}, save to {out}", {"out": out, "want": str(want)},
        {"a": a, "b": b, "operator": operator}, [f"calc {a}{operator}{b}", f"write {out} {want}", "done"])


def _record(values: dict[str, int]) -> str:
    return "rec " + " ".join(f"{key} {value}" for key, value in values.items())


def _field(rng: random.Random) -> Instance:
    out, source = f"{rng.choice(OUTPUTS)}.txt", f"{rng.choice(SOURCES)}.txt"
    keys = rng.sample(KEYS, len(KEYS))
    values = {key: rng.randint(11, 99) for key in keys}
    key = rng.choice(keys)
    return Instance(
        "field", f"find {key} in {source}, save to {out}", {"out": out, "want": str(values[key])},
        {"source": source, "key": key}, [f"grep {key} {source}", f"write {out} {values[key]}", "done"],
        {source: _record(values)})


def _chain(rng: random.Random) -> Instance:
    out, source = f"{rng.choice(OUTPUTS)}.txt", f"{rng.choice(SOURCES)}.txt"
    keys = rng.sample([rng.choice(KEYS), "qty", "price"], 3)
    values = {key: rng.randint(11, 99) for key in keys} | {"qty": rng.randint(2, 9), "price": rng.randint(2, 11)}
    quantity, price = values["qty"], values["price"]
    want = quantity * price
    return Instance(
        "chain", f"compute qty times price in {source}, save to {out}", {"out": out, "want": str(want)},
        {"source": source, "quantity": quantity, "price": price},
        [f"cat {source}", f"calc {quantity}*{price}", f"write {out} {want}", "done"], {source: _record(values)})


def _box(rng: random.Random) -> Instance:
    (width, depth, height), out = rng.choice(_BOXES), f"{rng.choice(MESHES)}.obj"
    volume = width * depth * height
    return Instance(
        "box", f"box width {width} depth {depth} volume {volume}, save to {out}",
        {"out": out, "width": width, "depth": depth, "volume": volume}, {"height": height},
        [f"calc {volume}/{width}/{depth}", f"box {width} {depth} {height} {out}", "done"])


_MISSES = 10_000
"""Draws of known tasks in a row after which a family counts as drawn dry."""
_DRAW: dict[str, Callable[[random.Random], Instance]] = {"calc": _calc, "field": _field, "chain": _chain, "box": _box}


def tool_task(family: str, rng: random.Random, heldout: bool = False) -> Task:
    """The next task of a family that is, or is not, held out."""
    while True:
        instance = _DRAW[family](rng)
        if instance.heldout == heldout:
            return instance.task()


def training_tasks(seed: int, step: int, count: int) -> list[Task]:
    """`count` different tasks, families in turn: the same for the same seed and step, never a held-out one."""
    return _different(random.Random(f"tools/{seed}/{step}"), count, heldout=False)


@cache
def _heldout() -> tuple[Task, ...]:
    return tuple(_different(random.Random("tools/heldout"), HELDOUT_PER_FAMILY * len(FAMILIES), heldout=True))


def heldout_tasks() -> list[Task]:
    """The 256 fixed tasks, 64 a family, that are never trained on."""
    return list(_heldout())


def _different(rng: random.Random, count: int, heldout: bool) -> list[Task]:
    drawn: dict[str, Task] = {}
    misses = 0
    while len(drawn) < count:
        task = tool_task(FAMILIES[len(drawn) % len(FAMILIES)], rng, heldout)
        misses = misses + 1 if task.task_id in drawn else 0
        if misses > _MISSES:
            raise TaskError("a family has not so many different tasks", where=f"family {task.hidden['family']}",
                            value=count, hint="ask for fewer at once: further steps draw again")
        drawn.setdefault(task.task_id, task)
    return list(drawn.values())
