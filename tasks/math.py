"""Word problems with one answer, drawn from fixed seeds: whole numbers, money, fractions, percents, negative numbers.

Each template works its answer out from the numbers that it puts into the text, exactly.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction

from tasks.scripts import PROTOCOL, TOOLS, done
from tasks.task import Task

PER_TEMPLATE = 4
ASKING = f"Hand in the final answer alone, as a number or an expression; one answer, not several.\n\n{PROTOCOL}"
Problem = tuple[str, str, str]
"""Question, wanted answer, and what a usual slip gives."""


def task_of(task_id: str, set_name: str, question: str, want: str, slip: str = "") -> Task:
    """A task of kind `math` whose reference hands in the wanted answer."""
    return Task(task_id=task_id, kind="math", set=set_name, prompt=f"{question}\n\n{ASKING}", tools=TOOLS,
                hidden={"want": want}, reference=[done(want)], difficulty=0.3, expected_duration_s=0.2,
                variants={"wrong": [done(slip)], "hedged": [done(f"{want} or {slip}")]} if slip else {})


def math_tasks() -> list[Task]:
    tasks = []
    for name, template in TEMPLATES.items():
        for index in range(PER_TEMPLATE):
            question, want, slip = template(random.Random(f"math/{name}/{index}"))
            tasks.append(task_of(f"math-{name}-{index}", "math", question, want, slip))
    return tasks


def _money(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02d}"


def _fraction(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else f"{value.numerator}/{value.denominator}"


def _crates(rng: random.Random) -> Problem:
    crates, each, sold = rng.randint(6, 24), rng.randint(8, 36), rng.randint(5, 40)
    return (f"A stall gets {crates} crates of {each} apples and sells {sold} apples. How many apples are left?",
            str(crates * each - sold), str(crates * each))


def _change(rng: random.Random) -> Problem:
    count, price = rng.randint(2, 9), rng.randint(35, 499)
    paid = (count * price // 1000 + 1) * 1000
    return (f"Pens cost ${_money(price)} each. Someone buys {count} pens and pays with ${paid // 100}. How many "
            "dollars of change are due?", _money(paid - count * price), _money(count * price))


def _share(rng: random.Random) -> Problem:
    one, two = rng.sample((2, 3, 4, 5, 6, 7, 8), 2)
    left = 1 - Fraction(1, one) - Fraction(1, two)
    return (f"One guest eats 1/{one} of a cake, another 1/{two}. Which fraction of the cake is left?",
            _fraction(left), _fraction(1 - left))


def _discount(rng: random.Random) -> Problem:
    old = rng.randint(2, 40) * 20
    percent = rng.choice((5, 10, 15, 20, 25, 30, 40, 45, 60))
    return (f"A coat that cost ${old} now costs ${_money(old * (100 - percent))}. By what percent was it reduced?",
            str(percent), str(100 - percent))


def _speed(rng: random.Random) -> Problem:
    hours, speed = rng.choice((Fraction(3, 2), Fraction(5, 2), Fraction(9, 4), Fraction(7, 4))), rng.randint(10, 40) * 4
    return (f"A train runs at {speed} km per hour for {hours.numerator}/{hours.denominator} hours. How many kilometers "
            "is that?", str(speed * hours), str(speed * int(hours)))


def _frost(rng: random.Random) -> Problem:
    start, fall, rise = rng.randint(1, 6), rng.randint(9, 20), rng.randint(1, 3)
    return (f"It is {start} degrees, then {fall} degrees colder, then {rise} degrees warmer. How many degrees is it "
            "now?", str(start - fall + rise), str(start + fall + rise))


def _mean(rng: random.Random) -> Problem:
    marks = [rng.randint(20, 99) for _ in range(4)]
    return (f"Four tests gave {', '.join(map(str, marks[:3]))} and {marks[3]} points. What is the mean number of "
            "points?", f"{sum(marks) / 4:g}", str(sum(marks)))


def _two_kinds(rng: random.Random) -> Problem:
    cows, hens = rng.randint(3, 30), rng.randint(3, 30)
    return (f"A farm has cows and hens: {cows + hens} heads and {4 * cows + 2 * hens} legs. How many cows are there?",
            str(cows), str(hens if hens != cows else hens + 1))


def _grid(rng: random.Random) -> Problem:
    long, wide, tile = rng.randint(6, 30), rng.randint(4, 20), rng.choice((2, 4, 5))
    return (f"A floor is {long} m by {wide} m. Each square meter takes {tile} tiles. How many tiles are needed?",
            str(long * wide * tile), str(2 * (long + wide) * tile))


TEMPLATES: dict[str, Callable[[random.Random], Problem]] = {
    "crates": _crates, "change": _change, "share": _share, "discount": _discount, "speed": _speed, "frost": _frost,
    "mean": _mean, "animals": _two_kinds, "tiles": _grid}
