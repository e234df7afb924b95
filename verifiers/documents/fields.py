"""Reading one answered value by its type, strictly: one value, finite, in the document's own way of writing or as a
JSON value. What cannot be read so is wrong, never an error.

Amounts are Decimal from end to end: a JSON number never becomes a float.
"""

from __future__ import annotations

import datetime
import json
import re
import unicodedata
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple

ANSWER_LIMIT = 64 << 10
DIGITS_LIMIT = 30


class BadAnswer(ValueError):
    """The answer as a whole is not one JSON object."""


class Locale(NamedTuple):
    decimal: str = "."
    group: str = ","
    currencies: tuple[str, ...] = ()


def parse_answer(text: str | None) -> dict[str, Any]:
    """The answer's JSON object. One object and nothing beside it; no key twice, no NaN; numbers become Decimal."""
    if text is None or not text.strip():
        raise BadAnswer("nothing was answered")
    if len(text) > ANSWER_LIMIT:
        raise BadAnswer(f"longer than {ANSWER_LIMIT} characters")
    try:
        answer = json.loads(text, parse_float=_number_of, parse_int=_number_of, parse_constant=_refuse,
                            object_pairs_hook=_object)
    except BadAnswer:
        raise
    except (ValueError, RecursionError) as wrong:
        raise BadAnswer(f"not JSON ({wrong})") from None
    if not isinstance(answer, dict):
        raise BadAnswer("not a JSON object")
    return answer


def _number_of(text: str) -> Decimal:
    value = Decimal(text) if len(text) <= DIGITS_LIMIT else Decimal("nan")
    if not value.is_finite() or abs(value.adjusted()) > DIGITS_LIMIT:
        raise BadAnswer("a number out of all proportion")
    return value


def _refuse(text: str) -> Any:
    raise BadAnswer(f"{text} is no JSON value")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise BadAnswer("a key stands there twice")
    return made


def matches(kind: str, got: Any, want: str, locale: Locale) -> bool:
    """Whether an answered value is the wanted one. `want` is canonical: ISO date, plain decimal point."""
    return TYPES[kind](got, want, locale)


def number(value: Any, locale: Locale, symbols: tuple[str, ...] = ()) -> Decimal | None:
    """One number: a JSON number, or text such as `1.234,50` in the document's locale. None if it is not that.

    A minus sign in front or behind, or parentheses around, make it negative. Groups must be of three digits.
    """
    if isinstance(value, Decimal):
        return value
    if not isinstance(value, str) or len(value) > 2 * DIGITS_LIMIT:
        return None
    text, sign = unicodedata.normalize("NFKC", value).replace("\u2212", "-").strip(), 1
    text, bare = _without_symbol(text, symbols)
    if text.startswith("(") and text.endswith(")"):
        sign, text = -1, text[1:-1].strip()
    elif text.startswith("-") or text.endswith("-"):
        sign, text = -1, (text[1:] if text.startswith("-") else text[:-1]).strip()
    if not bare:
        text, _ = _without_symbol(text, symbols)
    amount = _unsigned(text, locale)
    return None if amount is None else sign * amount


def _without_symbol(text: str, symbols: tuple[str, ...]) -> tuple[str, bool]:
    """Take one symbol from either end."""
    for symbol in symbols:
        if text.startswith(symbol):
            return text.removeprefix(symbol).strip(), True
        if text.endswith(symbol):
            return text.removesuffix(symbol).strip(), True
    return text, False


def _unsigned(text: str, locale: Locale) -> Decimal | None:
    whole, point, part = text.partition(locale.decimal)
    groups = whole.split(locale.group) if locale.group else [whole]
    if any(not re.fullmatch("[0-9]+", piece) for piece in [*groups, *([part] if point else [])]):
        return None
    if len(groups) > 1 and (len(groups[0]) > 3 or any(len(group) != 3 for group in groups[1:])):
        return None
    return Decimal("".join(groups) + (f".{part}" if point else ""))


def money(value: Any, locale: Locale) -> Decimal | None:
    """A number that may have one of the document's currency symbols before or behind it."""
    return number(value, locale, locale.currencies)


def _same_text(got: Any, want: str, locale: Locale) -> bool:
    return isinstance(got, str) and _folded(got) == _folded(want)


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _same_id(got: Any, want: str, locale: Locale) -> bool:
    """Exact text: a number would have lost leading zeros."""
    return isinstance(got, str) and got.strip() == want


def _same_date(got: Any, want: str, locale: Locale) -> bool:
    if not isinstance(got, str) or not re.fullmatch(r"\d{4}-\d{2}-\d{2}", got.strip(), re.ASCII):
        return False
    try:
        return datetime.date.fromisoformat(got.strip()) == datetime.date.fromisoformat(want)
    except ValueError:
        return False


def _same_number(got: Any, want: str, locale: Locale) -> bool:
    return number(got, locale) == Decimal(want)


def _same_money(got: Any, want: str, locale: Locale) -> bool:
    return money(got, locale) == Decimal(want)


TYPES: dict[str, Callable[[Any, str, Locale], bool]] = {
    "text": _same_text, "id": _same_id, "date": _same_date, "number": _same_number, "money": _same_money}
