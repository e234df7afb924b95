"""Compares what came from sealed places with what was wanted there; and line-ups, for values that cannot come.

An object that only its own `__eq__` can compare has no plain form. For it the test is run once more, and the object is
shown the wanted value among others that resemble it and one another: it must be equal to that one alone. Whoever does
not know the value can only guess, and an object that is equal to everything shows itself.
"""

from __future__ import annotations

import random
import string
from collections.abc import Mapping
from typing import Any

from verifiers import values
from verifiers.repository_literals import Comparison
from verifiers.repository_seal import Place
from verifiers.repository_values import digest_of

LINE_UP = 64
_TRIES = 2000


def holds(place: Place, row: int, came: Mapping[str, Any]) -> bool | None:
    """Whether what came is what was wanted; None if only a line-up can tell."""
    want, asked = place.want(row), place.asked
    if "digest" in came:
        return asked.kind == "eq" and came["digest"] == digest_of(values.encode(want))
    if "value" not in came:
        return None if asked.kind != "is" else False
    try:
        got = values.decode(came["value"])
        return bool(_compared(asked, got, want))
    except (values.Unencodable, TypeError, ValueError, OverflowError):
        return False


def _compared(asked: Comparison, got: Any, want: Any) -> bool:
    """Both are plain: Python's own equality runs no code of the submission."""
    if asked.kind == "is":
        return type(got) is type(want) and got == want
    if asked.kind == "in":
        return want in got
    if asked.kind == "near":
        return _near(got, want, asked.tolerance)
    return bool(got == want)


def _near(got: Any, want: Any, tolerance: tuple[float, float]) -> bool:
    if isinstance(want, list | tuple):
        return (isinstance(got, list | tuple) and len(got) == len(want)
                and all(_near(one, other, tolerance) for one, other in zip(got, want, strict=True)))
    relative, absolute = tolerance
    return bool(got == want or abs(got - want) <= max(relative * abs(want), absolute))


def line_up(place: Place, row: int, secret: str) -> tuple[list[Any], int]:
    """Encoded values, and where the wanted one stands among them. Each resembles another of them."""
    want = place.want(row)
    chance = random.Random(secret)
    shown = [want]
    for _ in range(_TRIES):
        if len(shown) == LINE_UP:
            break
        other = resembling(chance.choice(shown), chance)
        if not any(_compared(place.asked._replace(kind="eq"), other, one) or other == one for one in shown):
            shown.append(other)
    chance.shuffle(shown)
    where = next(number for number, one in enumerate(shown) if type(one) is type(want) and one == want)
    return [values.encode(one) for one in shown], where


def stands_out(bits: Any, where: int, shown: int) -> bool:
    return isinstance(bits, list) and len(bits) == shown and all(
        bit is (number == where) for number, bit in enumerate(bits))


def resembling(value: Any, chance: random.Random) -> Any:
    """Another value of the same kind."""
    if value is None or isinstance(value, bool):
        return chance.choice([None, True, False])
    if isinstance(value, int):
        return value + chance.choice([-1, 1]) * chance.randint(1, max(9, abs(value) // 2))
    if isinstance(value, float):
        return round(value + chance.choice([-1, 1]) * (abs(value) + 1.0) * chance.uniform(0.1, 0.9), 3)
    if isinstance(value, str):
        return _other_text(value, string.ascii_lowercase, chance)
    if isinstance(value, bytes):
        return _other_text(value.decode("latin-1"), string.ascii_lowercase, chance).encode("latin-1")
    if isinstance(value, list | tuple):
        return type(value)(_other_items(list(value), chance))
    if isinstance(value, dict):
        keys = _other_items(list(value), chance) if chance.random() < 0.3 else list(value)
        told = _other_items(list(value.values()), chance)
        return dict(zip(keys, told, strict=False))
    if isinstance(value, set | frozenset):
        return type(value)(_other_items(sorted(value, key=repr), chance))
    return (value, chance.random())


def _other_text(text: str, letters: str, chance: random.Random) -> str:
    if not text:
        return "".join(chance.choices(letters, k=chance.randint(1, 6)))
    at = chance.randrange(len(text))
    alike = string.digits if text[at].isdigit() else letters.upper() if text[at].isupper() else letters
    return text[:at] + chance.choice(alike) + text[at + 1:]


def _other_items(items: list[Any], chance: random.Random) -> list[Any]:
    if not items or chance.random() < 0.2:
        return [*items, resembling(items[-1] if items else 0, chance)]
    at = chance.randrange(len(items))
    return [*items[:at], resembling(items[at], chance), *items[at + 1:]]
