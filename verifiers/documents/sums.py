"""Sums that must hold among the *answered* amounts, to a cent for each amount in them: lines = subtotal, subtotal + tax
= total. An amount that is not there, or is none, breaks its sum."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from verifiers.documents import fields
from verifiers.documents.locale import Locale

CENT = Decimal("0.01")


def check(sums: list[list[str]], answer: Mapping[str, Any], locale: Locale) -> list[dict[str, Any]]:
    """One row of evidence for each sum, with `holds`."""
    rows = []
    for *parts, whole in sums:
        amounts = [amount for name in parts for amount in _amounts(_at(name, answer), locale)]
        totals = _amounts(_at(whole, answer), locale)
        row: dict[str, Any] = {"sum": f"{' + '.join(parts)} = {whole}", "holds": False}
        if amounts and None not in amounts and len(totals) == 1 and totals[0] is not None:
            difference = sum((amount for amount in amounts if amount is not None), Decimal(0)) - totals[0]
            row["difference"], row["holds"] = f"{difference:f}", abs(difference) <= CENT * len(amounts)
        rows.append(row)
    return rows


def _at(name: str, answer: Mapping[str, Any]) -> Any:
    """A field, or the values of one column of its rows."""
    field, _, column = name.partition(".")
    value = answer.get(field)
    if not column or not isinstance(value, list):
        return value
    return [row[column] for row in value if isinstance(row, Mapping) and row.get(column) is not None]


def _amounts(value: Any, locale: Locale) -> list[Decimal | None]:
    return [fields.money(item, locale) for item in (value if isinstance(value, list) else [value])]
