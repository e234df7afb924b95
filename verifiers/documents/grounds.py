"""Where answered values stand in the documents: a value that stands nowhere is made up, or worked out."""

from __future__ import annotations

import datetime
import functools
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from verifiers.documents import dates
from verifiers.documents.fields import money
from verifiers.documents.locale import Locale
from verifiers.documents.match import Leaf
from verifiers.documents.texts import folded

_DATE = re.compile(r"\d{1,4}[-/.] ?\d{1,2}[-/.] ?\d{1,4}"
                   r"|\d{1,2}\.?(?:st|nd|rd|th)? (?:de )?[^\W\d_]{3,12}\.?,? (?:de )?\d{4}"
                   r"|[^\W\d_]{3,12}\.? \d{1,2}(?:st|nd|rd|th)?,? \d{4}")
_NUMBER = re.compile(r"\(?[-−]?\d[\d.,'’\u066b\u066c\u00a0\u202f]*\)?-?")


class Grounds:
    """An index of some pages."""

    def __init__(self, pages: Sequence[str], locale: Locale) -> None:
        self._texts = [folded(page) for page in pages]
        self._numbers = [{amount for found in _NUMBER.findall(page)
                          if (amount := money(found.rstrip(".,"), locale)) is not None} for page in pages]
        self._dates = [{day for found in _DATE.findall(page) if (day := dates.parse(found, locale.dates))}
                       for page in pages]
        self._locale = locale

    def page(self, value: Any) -> int | None:
        """The first page, from 1, on which the value stands, as text, number or date."""
        text = folded(str(value)) if not isinstance(value, Decimal) else ""
        amount = money(value, self._locale)
        day = dates.parse(value, self._locale.dates) if isinstance(value, str) else None
        for number in range(len(self._texts)):
            if self._stands(number, text, amount, day):
                return number + 1
        return None

    def _stands(self, page: int, text: str, amount: Decimal | None, day: datetime.date | None) -> bool:
        if text and re.search(rf"(?<!\w){re.escape(text)}(?!\w)", self._texts[page]):
            return True
        return amount in self._numbers[page] or day in self._dates[page]


@functools.lru_cache(maxsize=8)
def _index(pages: tuple[str, ...], locale: Locale) -> Grounds:
    return Grounds(pages, locale)


def grounded(found: Sequence[Leaf], pages: Sequence[str], locale: Locale) -> tuple[float, dict[str, int | None]]:
    """The share of answered single values that stand somewhere, and the page of each."""
    index = _index(tuple(pages), locale)
    where = {leaf.path: index.page(leaf.got) for leaf in found
             if leaf.answered and isinstance(leaf.got, str | Decimal) and str(leaf.got).strip()}
    return (sum(page is not None for page in where.values()) / len(where) if where else 1.0), where
