"""English number words as exact numbers: `twenty-one`, `one hundred and five`, `two and a half`, `two point five`,
`minus three quarters`. The whole text must be one number in its usual order; `twenty fifteen` is none."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

TEXT_LIMIT = 160
_SMALL = {word: value for value, word in enumerate((
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"))}
_TENS = {"twenty": 20, "thirty": 30, "forty": 40, "fourty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80,
         "ninety": 90}
_POWERS = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_PARTS = {"half": 2, "halves": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7,
          "eighth": 8, "ninth": 9, "tenth": 10, "twelfth": 12, "twentieth": 20, "hundredth": 100, "thousandth": 1000}


def number_in_words(text: str) -> Fraction | None:
    text = re.sub(r"\b(thousand|million|billion|trillion),", r"\1", text[:TEXT_LIMIT + 1].lower())
    if len(text) > TEXT_LIMIT or not re.fullmatch(r"[a-z -]*[a-z]", text) or text == "a":
        return None
    words = re.split(r"[ -]+", text.strip(" -"))
    sign = -1 if words[0] in ("minus", "negative") else 1
    value = _unsigned(words[1:] if sign < 0 else words)
    return None if value is None else sign * value


def _unsigned(words: Sequence[str]) -> Fraction | None:
    if "point" in words:
        at = words.index("point")
        whole, digits = _whole(words[:at]) if at else 0, [_SMALL.get(word, 99) for word in words[at + 1:]]
        if whole is None or not digits or max(digits) > 9:
            return None
        return whole + Fraction(int("".join(map(str, digits))), 10 ** len(digits))
    part = words[-1] if words[-1:] and words[-1] in _PARTS else words[-1][:-1] if words else ""
    if part in _PARTS:
        return _with_part(words[:-1], _PARTS[part])
    value = _whole(words)
    return None if value is None else Fraction(value)


def _with_part(words: Sequence[str], under: int) -> Fraction | None:
    """`half`, `three quarters`, `two and a half`."""
    if not words:
        return Fraction(1, 2) if under == 2 else None
    at = max((index for index, word in enumerate(words) if word == "and"), default=-1)
    over = 1 if words[at + 1:] == ["a"] or not words[at + 1:] else _whole(words[at + 1:])
    whole = _whole(words[:at]) if at > 0 else 0 if at < 0 else None
    if over is None or whole is None or not 0 < over < (under if whole else 10**6):
        return None
    return whole + Fraction(over, under)


def _whole(words: Sequence[str]) -> int | None:
    """A whole number: groups below a thousand, each with a smaller power than the one before it."""
    total, group, last = 0, list[str](), 10**15
    for word in words:
        if word not in _POWERS:
            group.append(word)
            continue
        value = _below_thousand(group)
        if not value or _POWERS[word] >= last:
            return None
        total, group, last = total + value * _POWERS[word], [], _POWERS[word]
    if not group:
        return total if total else None
    rest = _below_thousand(group[1:] if total and group[0] == "and" else group)
    return None if rest is None or (total and not rest) else total + rest


def _below_thousand(words: Sequence[str]) -> int | None:
    words = ["one", *words[1:]] if words[:2] == ["a", "hundred"] else words
    if "hundred" in words:
        at = list(words).index("hundred")
        hundreds, rest = _below_hundred(words[:at]), list(words[at + 1:])
        more = _below_hundred(rest[1:] if rest[:1] == ["and"] else rest) if rest else 0
        return None if not hundreds or more is None or (rest and not more) else 100 * hundreds + more
    return 1 if words == ["a"] else _below_hundred(words)


def _below_hundred(words: Sequence[str]) -> int | None:
    if len(words) == 1:
        return _SMALL.get(words[0], _TENS.get(words[0]))
    if len(words) == 2 and words[0] in _TENS and 0 < _SMALL.get(words[1], 0) < 10:
        return _TENS[words[0]] + _SMALL[words[1]]
    return None
