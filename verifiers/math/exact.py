"""Plain numbers, exactly: integers, decimals, fractions, mixed numbers. No mathematics library is needed for these.

A decimal that is not exactly the wanted value agrees with it if it is the value, rounded, with at least six significant
digits: 0.333333 is a third, 0.333 is not.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

DIGITS_LIMIT = 60
EXPONENT_LIMIT = 60
SIGNIFICANT = 6


class Number(NamedTuple):
    value: Fraction
    unit: Fraction | None = None
    """One unit of the last decimal that was written; None: written exactly, as an integer or a fraction."""
    digits: int = 0
    """Significant digits of a decimal."""


def plain_number(text: str) -> Number | None:
    """The number that `text` is, or None. Thousands are without commas by now."""
    if len(text) > DIGITS_LIMIT:
        return None
    text = re.sub(r"^([-+]) ", r"\1", text.strip())
    text = re.sub(r"\\frac ?\{?(-?\d+?)\}? ?\{?(\d+)\}?$", r" \1/\2", text) if "\\frac" in text else text
    text = re.sub(r"^([-+]?) +", r"\1", text)
    if found := re.fullmatch(r"([-+]?)(\d*)\.(\d+)|([-+]?)(\d+)\.?", text, re.ASCII):
        return _decimal(found)
    if found := re.fullmatch(r"([-+]?\d+(?:\.\d+)?)[eE]([-+]?\d{1,3})", text, re.ASCII):
        exponent = int(found[2])
        return Number(Fraction(found[1]) * Fraction(10) ** exponent) if abs(exponent) <= EXPONENT_LIMIT else None
    if found := re.fullmatch(r"([-+]?)(?:(\d+) +)?([-+]?\d+) ?/ ?(\d+)", text, re.ASCII):
        return _fraction(found)
    return None


def _decimal(found: re.Match[str]) -> Number:
    if found[5] is not None:
        return Number(Fraction(f"{found[4]}{found[5]}"))
    digits = f"{found[2]}{found[3]}".lstrip("0")
    return Number(Fraction(f"{found[1]}{found[2] or 0}.{found[3]}"), Fraction(1, 10 ** len(found[3])), len(digits))


def _fraction(found: re.Match[str]) -> Number | None:
    sign, whole, over, under = found.groups()
    if int(under) == 0 or (whole and (over[0] in "+-" or int(over) >= int(under))):
        return None
    value = Fraction(int(over), int(under)) + int(whole or 0)
    return Number(-value if sign == "-" else value)


def agrees(got: Number, want: Fraction) -> bool:
    """Whether an answered number is the wanted value, or a fine enough rounding of it."""
    if got.value == want:
        return True
    return got.unit is not None and got.digits >= SIGNIFICANT and abs(got.value - want) <= got.unit / 2 and (
        want.denominator != 1)
