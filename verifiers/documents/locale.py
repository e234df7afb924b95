"""How a document writes numbers and dates, as far as its task says it."""

from __future__ import annotations

from typing import NamedTuple


class Locale(NamedTuple):
    decimal: str = "."
    group: str = ","
    """Marks that may stand between groups of three digits; one kind in a number."""
    currencies: tuple[str, ...] = ()
    """Symbols and codes that may stand beside an amount."""
    dates: str = ""
    """`dmy` or `mdy` where 03/04/2024 is to be read; empty: such a date is ambiguous and no answer."""
