"""Whether one answered value is the wanted one, by type, strictly: one value, finite, in the document's own way of
writing or as a JSON value. What cannot be read so is wrong, never an error. `want` is canonical text: an ISO date, a
plain decimal point.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from verifiers.documents import dates
from verifiers.documents.locale import Locale
from verifiers.documents.numbers import is_nil, read
from verifiers.documents.texts import folded

NUMERIC = frozenset({"number", "money", "percent"})


def matches(kind: str, got: Any, want: str, locale: Locale) -> bool:
    return TYPES[kind](got, want, locale)


def is_nothing(kind: str, got: Any) -> bool:
    """What answers that there is nothing: null, and a lone dash for a number. 0 and empty text are values."""
    return got is None or (kind in NUMERIC and is_nil(got))


def number(value: Any, locale: Locale) -> Decimal | None:
    reading = read(value, locale, words=True)
    return reading.value if reading else None


def money(value: Any, locale: Locale) -> Decimal | None:
    """A number that may have one of the document's currencies beside it, and a word such as `million` behind it."""
    reading = read(value, locale, locale.currencies, scales=True)
    return reading.value if reading and reading.scale != "percent" else None


def percent(value: Any, locale: Locale) -> Decimal | None:
    """The number before the percent sign, which may be left out: 21 and 21 % are the same, 0.21 is not."""
    reading = read(value, locale, scales=True, words=True)
    if reading is None or reading.scale not in ("", "percent"):
        return None
    return reading.value * 100 if reading.scale else reading.value


def _same_text(got: Any, want: str, locale: Locale) -> bool:
    return isinstance(got, str) and folded(got) == folded(want)


def _same_id(got: Any, want: str, locale: Locale) -> bool:
    """Exact text. A JSON number has lost leading zeros, so it stands only for the digits that it has."""
    if isinstance(got, Decimal):
        return got == got.to_integral_value() and f"{got:f}" == want
    return isinstance(got, str) and got.strip() == want


def _same_date(got: Any, want: str, locale: Locale) -> bool:
    return isinstance(got, str) and dates.parse(got, locale.dates) == datetime.date.fromisoformat(want)


def _same_flag(got: Any, want: str, locale: Locale) -> bool:
    return isinstance(got, bool) and str(got).lower() == want


def _numeric(reader: Callable[[Any, Locale], Decimal | None]) -> Callable[[Any, str, Locale], bool]:
    return lambda got, want, locale: reader(got, locale) == Decimal(want)


TYPES: dict[str, Callable[[Any, str, Locale], bool]] = {
    "text": _same_text, "id": _same_id, "date": _same_date, "flag": _same_flag, "number": _numeric(number),
    "money": _numeric(money), "percent": _numeric(percent)}


def why_not(kind: str, got: Any, locale: Locale) -> str:
    """For a person: what a wrong answer was read as."""
    if kind in NUMERIC:
        value = {"number": number, "money": money, "percent": percent}[kind](got, locale)
        return "not one number in the document's writing" if value is None else f"read as {value:f}"
    if kind == "date":
        found = dates.parse(got, locale.dates) if isinstance(got, str) else None
        return f"read as {found.isoformat()}" if found else "no date, or one that can be read in two ways"
    if kind == "id" and isinstance(got, Decimal):
        return "a number has no leading zeros, and is another one here"
    return "" if isinstance(got, str) else "not a text" if kind != "flag" else "neither true nor false"
