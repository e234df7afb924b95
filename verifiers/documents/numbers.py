"""Reading one number as people write it. Exact (Decimal) from end to end; what is not exactly one number is None.

A minus in front or behind, or parentheses around, make it negative; groups are of three digits, or as in India
(12,34,567); digits of one script; one currency symbol of those allowed; where scales are allowed, one of `%`,
`percent`, `thousand`, `lakh`, `million`, `crore`, `billion`, `trillion` behind it is multiplied in; where words are,
an English number in words is one too. `-` alone is nil, not 0.
"""

from __future__ import annotations

import re
import unicodedata
from decimal import Decimal
from typing import Any, NamedTuple

from verifiers.documents.locale import Locale
from verifiers.number_words import number_in_words

DIGITS_LIMIT = 30
TEXT_LIMIT = 2 * DIGITS_LIMIT
SCALES = {
    "": Decimal(1), "percent": Decimal("0.01"), "hundred": Decimal(100), "thousand": Decimal(1000),
    "million": Decimal(10**6), "billion": Decimal(10**9), "trillion": Decimal(10**12)}
_INDIAN = {"lakh": Decimal(10**5), "lac": Decimal(10**5), "crore": Decimal(10**7)}
_SPELLINGS = {"%": "percent", "per cent": "percent", "mn": "million", "bn": "billion",
              **{name: name for name in SCALES if name}, **{f"{name}s": name for name in SCALES if name},
              **{name: name for name in _INDIAN}, **{f"{name}s": name for name in _INDIAN}}
SYMBOLS = ("US$", "USD", "A$", "AUD", "C$", "CAD", "GBP", "EUR", "JPY", "CHF", "INR", "PLN", "$", "€", "£", "¥", "₹")
"""Currencies that any English text may use."""
_CURRENCIES = (("US$", "USD", "$"), ("A$", "AUD", "$"), ("C$", "CAD", "$"), ("€", "EUR"), ("£", "GBP"),
               ("¥", "JPY"), ("¥", "CNY"), ("₹", "INR", "Rs.", "Rs"), ("zł", "PLN"), ("Kč", "CZK"), ("Fr.", "CHF"))
_DASHES = dict.fromkeys(map(ord, "‐‑‒–—−"), "-")


class Reading(NamedTuple):
    value: Decimal
    """With sign and scale."""
    unit: Decimal
    """One unit of the last digit that was written, in the same scale."""
    symbol: str = ""
    scale: str = ""


def is_nil(value: Any) -> bool:
    """A lone dash: nothing to report. It is not the number 0."""
    return isinstance(value, str) and value.translate(_DASHES).strip() in ("-", "--")


def raised(text: str) -> bool:
    """Whether there is a digit that is not on the line, such as ² or ①: it is no digit of a number."""
    return any(mark.isdigit() and not mark.isdecimal() for mark in text)


def same_currency(one: str, other: str) -> bool:
    """Whether two symbols may stand for one currency; `$` is that of several countries."""
    return one == other or any(one in names and other in names for names in _CURRENCIES)


def ascii_digits(text: str) -> str | None:
    """With the digits 0 to 9 for those of another script; None where there are digits of two scripts."""
    zeros = {ord(mark) - unicodedata.decimal(mark) for mark in text if mark.isdecimal()}
    if len(zeros) > 1:
        return None
    return text if zeros <= {ord("0")} else "".join(
        str(unicodedata.decimal(mark)) if mark.isdecimal() else mark for mark in text)


def read(value: Any, locale: Locale, symbols: tuple[str, ...] = (), scales: bool = False,
         words: bool = False) -> Reading | None:
    """The one number that `value` is: a JSON number, or text."""
    if isinstance(value, Decimal):
        return Reading(value, Decimal(1).scaleb(min(0, int(value.as_tuple().exponent))))
    if not isinstance(value, str) or len(value) > TEXT_LIMIT or raised(value):
        return None
    plain_text = ascii_digits(unicodedata.normalize("NFKC", value.translate(_DASHES)).strip())
    if plain_text is None:
        return None
    if words and (spoken := number_in_words(plain_text)) is not None:
        amount = Decimal(spoken.numerator) / Decimal(spoken.denominator)
        return Reading(amount, Decimal(1)) if amount * spoken.denominator == spoken.numerator else None
    text = _marked(plain_text, locale)
    sign, symbol, scale = "", "", ""
    while True:
        if not sign and (peeled := _without_sign(text)):
            sign, text = peeled
        elif not symbol and (peeled := _without_symbol(text, symbols)):
            symbol, text = peeled
        elif scales and not scale and (peeled := _without_scale(text)):
            scale, text = peeled
        else:
            break
    plain = _unsigned(text, locale)
    if plain is None:
        return None
    amount, unit = plain
    factor = SCALES.get(scale) or _INDIAN[scale]
    return Reading((-amount if sign == "-" else amount) * factor, unit * factor, symbol, scale)


def _marked(text: str, locale: Locale) -> str:
    """With the document's marks for those of the Arabic script, and without `/-`, which ends an amount of rupees."""
    text = text.replace("\u066b", locale.decimal).replace("\u066c", locale.group[:1])
    return text.removesuffix("/-").strip() if text.endswith("/-") and "-" not in text[:-2] else text


def _without_sign(text: str) -> tuple[str, str] | None:
    if text.startswith("(") and text.endswith(")"):
        return "-", text[1:-1].strip()
    if text[:1] in ("-", "+"):
        return text[0], text[1:].strip()
    return ("-", text[:-1].strip()) if text.endswith("-") else None


def _without_symbol(text: str, symbols: tuple[str, ...]) -> tuple[str, str] | None:
    """One symbol from either end, the longest that fits."""
    for symbol in sorted(symbols, key=len, reverse=True):
        if text.startswith(symbol):
            return symbol, text.removeprefix(symbol).strip()
        if text.endswith(symbol):
            return symbol, text.removesuffix(symbol).strip()
    return None


def _without_scale(text: str) -> tuple[str, str] | None:
    found = re.fullmatch(r"(.*[\d)\s])(%|[a-z ]+)", text, re.ASCII | re.IGNORECASE | re.DOTALL)
    name = _SPELLINGS.get(found[2].strip().lower(), "") if found else ""
    return (name, found[1].strip()) if found and name else None


def _unsigned(text: str, locale: Locale) -> tuple[Decimal, Decimal] | None:
    """Value and unit of the last digit."""
    whole, point, part = text.partition(locale.decimal)
    marks = sorted(set(whole) & set(unicodedata.normalize("NFKC", locale.group)))
    if len(marks) > 1:
        return None
    groups = whole.split(marks[0]) if marks else [whole]
    if any(not re.fullmatch("[0-9]+", piece) for piece in [*groups, *([part] if point else [])]):
        return None
    if len(groups) > 1 and not _are_groups(groups):
        return None
    return Decimal("".join(groups) + (f".{part}" if point else "")), Decimal(1).scaleb(-len(part))


def _are_groups(groups: list[str]) -> bool:
    """Of three digits each, or of two before the last three; the first may be shorter and begins with no 0."""
    first, *middle, last = groups
    sizes = {len(group) for group in middle}
    return not first.startswith("0") and len(last) == 3 and (
        (sizes <= {3} and len(first) <= 3) or (sizes == {2} and len(first) <= 2))
