"""An answered JSON object against the wanted fields.

F1 over values that stand somewhere: 2 TP / (answered + wanted). A wrong value is answered and wanted, so each costs
exactly itself; made-up ones are answered and not wanted, so dumping the page does not pay. Where nothing is wanted,
nothing may be answered; null is no value and earns nothing. Rows of items are paired so that most of their values
agree; every value in them counts alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from verifiers.documents import fields
from verifiers.documents.assignment import assign
from verifiers.documents.hidden import DocumentsHidden, Field
from verifiers.documents.locale import Locale
from verifiers.documents.numbers import same_currency

ABSENT = object()
ROWS_LIMIT = 500
"""Answered rows that are paired; those beyond are made up, each value of them."""


class Leaf(NamedTuple):
    """One value: what was wanted at a path and what was answered. `answered` counts values, so that a list where one
    value is wanted costs each of its values."""

    path: str
    verdict: str
    wanted: int
    answered: int
    want: Any = None
    got: Any = None
    why: str = ""


def leaves(hidden: DocumentsHidden, answer: Mapping[str, Any]) -> list[Leaf]:
    """Verdict on each value: right, wrong, missing, invented (the document says nothing there), extra (not asked for),
    or nothing (rightly)."""
    found: list[Leaf] = []
    for name, field in hidden.fields.items():
        got = answer.get(name, ABSENT)
        locale = _locale(field, hidden.locale)
        if field.type == "items":
            found += _items(name, field, got, locale)
        else:
            found.append(_value(name, field.type, field.want, got, locale, field.also))
    return found + [leaf for name in answer if name not in hidden.fields for leaf in _extra(name, answer[name])]


def rates(found: list[Leaf]) -> dict[str, float]:
    """`fields` is F1. Nothing wanted and nothing answered is all 1; one of both empty is all 0."""
    right = sum(leaf.verdict == "right" for leaf in found)
    wanted, answered = sum(leaf.wanted for leaf in found), sum(leaf.answered for leaf in found)
    if not wanted and not answered:
        return {"fields": 1.0, "precision": 1.0, "recall": 1.0}
    return {"fields": 2 * right / (wanted + answered), "precision": right / answered if answered else 0.0,
            "recall": right / wanted if wanted else 0.0}


def _locale(field: Field, locale: Locale) -> Locale:
    """Where the field names its currency, that one's symbols alone may stand beside its amounts."""
    if not field.currency:
        return locale
    return locale._replace(currencies=tuple(symbol for symbol in (field.currency, *locale.currencies)
                                            if same_currency(symbol, field.currency)))


def _value(path: str, kind: str, want: Any, got: Any, locale: Locale, also: Sequence[str] = ()) -> Leaf:
    if got is ABSENT or fields.is_nothing(kind, got):
        return Leaf(path, "nothing" if want is None else "missing", int(want is not None), 0, want)
    if want is None:
        return Leaf(path, "invented", 0, _count(got), None, got)
    if isinstance(want, list):
        same = isinstance(got, list) and len(got) == len(want) and all(
            fields.matches(kind, one, other, locale) for one, other in zip(got, want, strict=True))
        surplus = max(0, _count(got) - max(1, len(want)))
        return Leaf(path, "right" if same else "wrong", 1, 1 + surplus, want, got)
    if fields.matches(kind, got, want, locale):
        return Leaf(path, "right", 1, 1, want, got)
    if any(fields.matches(kind, got, one, locale) for one in also):
        return Leaf(path, "right", 1, 1, want, got, "a further right value")
    return Leaf(path, "wrong", 1, _count(got), want, got, fields.why_not(kind, got, locale))


def _count(value: Any) -> int:
    """How many values an answered value holds; at least one, for something was answered."""
    return max(1, sum(1 for _ in _values(value)))


def _values(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _values(item)
    elif value is not None:
        yield value


def _extra(path: str, got: Any) -> list[Leaf]:
    return [] if got is None else [Leaf(path, "extra", 0, _count(got), None, got)]


def _items(name: str, field: Field, got: Any, locale: Locale) -> list[Leaf]:
    wanted: list[dict[str, str]] = field.want  # type: ignore[assignment]
    if got is ABSENT or got is None:
        got = []
    if not isinstance(got, list) or any(not isinstance(row, Mapping) for row in got):
        lost = [_value(f"{name}[{index}].{key}", "text", want, ABSENT, locale)
                for index, row in enumerate(wanted) for key, want in row.items()]
        return [*lost, Leaf(name, "wrong", 0, _count(got), None, got, "not a list of rows")]
    pairs = _pairs(field, wanted, got[:ROWS_LIMIT], locale)
    found: list[Leaf] = []
    for index, row in enumerate(wanted):
        found += _row(f"{name}[{index}]", field, row, got[pairs[index]] if index in pairs else {}, locale)
    for index, row in enumerate(got):
        if index not in pairs.values():
            found += [leaf for key, value in row.items() for leaf in _extra(f"{name}[+{index}].{key}", value)]
    return found


def _row(path: str, field: Field, want: Mapping[str, str], got: Mapping[str, Any], locale: Locale) -> list[Leaf]:
    found = [_value(f"{path}.{key}", field.of.get(key, "text"), value, got.get(key, ABSENT), locale)
             for key, value in want.items()]
    return found + [leaf for key, value in got.items() if key not in want for leaf in _extra(f"{path}.{key}", value)]


def _pairs(field: Field, wanted: list[dict[str, str]], got: list[Mapping[str, Any]], locale: Locale) -> dict[int, int]:
    """Wanted row to answered row, most agreeing values first; rows left over are paired in order, so that a wrong row
    stands beside the one it was meant for."""
    worth = [[float(sum(leaf.verdict == "right" for leaf in _row("", field, want, row, locale))) for row in got]
             for want in wanted]
    pairs = dict(assign(worth))
    spare = iter([index for index in range(len(got)) if index not in pairs.values()])
    for index in range(len(wanted)):
        if index not in pairs and (other := next(spare, None)) is not None:
            pairs[index] = other
    return pairs
