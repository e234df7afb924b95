"""Invoices, credit notes and statements as text files, drawn from fixed seeds; the answer is one JSON object.

Documents differ in language of numbers (1,234.50 or 1.234,50), in layout, in how they write dates and negative
amounts; some do not say all that is asked. All amounts are exact and add up.
"""

from __future__ import annotations

import datetime
import json
import random
from decimal import Decimal
from typing import Any, NamedTuple

from tasks.scripts import PROTOCOL, TOOLS, done, run
from tasks.task import Task

COUNT = 8
CENT = Decimal("0.01")
_SUPPLIERS = ("Aldergate Tools Ltd", "Brinkmann & Söhne GmbH", "Cordoba Papelería", "Dellwood Dairy", "Eikenhof B.V.",
              "Ferrante Marmi S.r.l.", "Grünwald Optik KG", "Harrow Lane Print")
_GOODS = ("oak plank", "steel bracket", "linen paper", "lens cloth", "copper pipe", "wheel bearing", "ink cartridge",
          "milk crate", "marble tile", "cable drum")
_KINDS = ("invoice", "statement", "credit note", "invoice")


class Style(NamedTuple):
    """How a document writes numbers and dates."""

    decimal: str
    group: str
    symbol: str
    date: str
    labels: tuple[str, str, str, str, str, str]
    """number, date, due date, subtotal, tax, total."""


_STYLES = (
    Style(".", ",", "$", "%d %B %Y", ("Invoice no.", "Date", "Due", "Subtotal", "Sales tax", "Total")),
    Style(",", ".", "€", "%d.%m.%Y",
          ("Rechnungsnummer", "Datum", "Fällig am", "Zwischensumme", "MwSt.", "Gesamtbetrag")))


class Document(NamedTuple):
    """What a document says, before it is written down."""

    kind: str
    style: Style
    supplier: str
    number: str
    date: datetime.date
    due: datetime.date | None
    lines: list[tuple[str, Decimal]]
    tax_rate: int

    @property
    def subtotal(self) -> Decimal:
        return sum((amount for _, amount in self.lines), Decimal(0))

    @property
    def tax(self) -> Decimal:
        return (self.subtotal * self.tax_rate / 100).quantize(CENT)

    @property
    def total(self) -> Decimal:
        return self.subtotal + self.tax


def documents_tasks() -> list[Task]:
    return [_task(index, _draw(index)) for index in range(COUNT)]


def _draw(index: int) -> Document:
    rng = random.Random(f"documents/{index}")
    kind = _KINDS[index % len(_KINDS)]
    sign = -1 if kind == "credit note" else 1
    lines = [(f"{rng.randint(1, 12)} x {goods}", sign * Decimal(rng.randint(250, 250_000)) * CENT)
             for goods in rng.sample(_GOODS, rng.randint(2, 5))]
    if kind == "statement":
        lines.append(("returned goods", -Decimal(rng.randint(100, 2_000)) * CENT))
    date = datetime.date(2024, 1, 1) + datetime.timedelta(days=rng.randint(0, 600))
    due = date + datetime.timedelta(days=30) if index % 3 else None
    number = f"{rng.randint(0, 99999):05d}-{index}"
    return Document(kind, _STYLES[index % len(_STYLES)], _SUPPLIERS[index], number, date, due, lines,
                    rng.choice((7, 19, 20)))


def _amount(value: Decimal, style: Style) -> str:
    """Negative amounts in parentheses where the decimal mark is a point, with a minus behind where it is a comma."""
    whole, _, part = f"{abs(value):,.2f}".partition(".")
    text = f"{style.symbol} {whole.replace(',', style.group)}{style.decimal}{part}"
    if value >= 0:
        return text
    return f"({text})" if style.decimal == "." else f"{text}-"


def _text(document: Document) -> str:
    style = document.style
    number, date, due, subtotal, tax, total = style.labels
    head = [document.supplier, document.kind.upper(), "", f"{number}: {document.number}",
            f"{date}: {document.date.strftime(style.date)}"]
    if document.due:
        head.append(f"{due}: {document.due.strftime(style.date)}")
    rows = [*document.lines, (subtotal, document.subtotal), (f"{tax} {document.tax_rate} %", document.tax),
            (total, document.total)]
    return "\n".join([*head, "", *(f"{name:<28}{_amount(value, style):>18}" for name, value in rows), ""])


def _fields(document: Document) -> dict[str, dict[str, Any]]:
    return {
        "supplier": {"type": "text", "want": document.supplier},
        "number": {"type": "id", "want": document.number},
        "date": {"type": "date", "want": document.date.isoformat()},
        "due": {"type": "date", "want": document.due.isoformat() if document.due else None},
        "lines": {"type": "money", "want": [str(amount) for _, amount in document.lines]},
        "subtotal": {"type": "money", "want": str(document.subtotal)},
        "tax": {"type": "money", "want": str(document.tax)},
        "total": {"type": "money", "want": str(document.total)}}


def _task(index: int, document: Document) -> Task:
    fields, style = _fields(document), document.style
    name = f"{document.kind.replace(' ', '-')}.txt"
    answer = {key: field["want"] for key, field in fields.items()}
    partial = {**answer, "total": str(document.subtotal), "due": document.date.isoformat()}
    wrong = {key: [line for line in _text(document).split("\n") if line] for key in answer}
    return Task(
        task_id=f"documents-{index}-{document.kind.replace(' ', '-')}", kind="documents", set="documents",
        prompt=_prompt(name), tools=TOOLS, files={name: _text(document).encode()}, difficulty=0.3,
        expected_duration_s=0.5,
        hidden={"fields": fields, "decimal": style.decimal, "group": style.group, "currencies": [style.symbol],
                "sums": [["lines", "subtotal"], ["subtotal", "tax", "total"]]},
        reference=_turns(name, answer), variants={"wrong": _turns(name, wrong), "partial": _turns(name, partial)})


def _prompt(name: str) -> str:
    return (
        f"Read {name} and hand in one JSON object with the keys supplier (text), number (text), date and due "
        "(YYYY-MM-DD), lines (list of the amounts of the positions, in order), subtotal, tax, total. Amounts are "
        "numbers, or text as the document writes them; what is credited is negative. null for what the document does "
        f"not say.\n\n{PROTOCOL}")


def _turns(name: str, answer: dict[str, Any]) -> list[str]:
    """The answer as a policy would give it: amounts as JSON numbers."""
    said = {key: _as_numbers(value) if key in ("lines", "subtotal", "tax", "total") else value
            for key, value in answer.items()}
    return [run(f"cat {name}"), done(json.dumps(said, ensure_ascii=False))]


def _as_numbers(value: Any) -> Any:
    try:
        return [float(item) for item in value] if isinstance(value, list) else float(value)
    except ValueError:
        return value
