"""A folder of invoices as invoice2data keeps them: NAME.json (the wanted fields; one object, alone or in a list) beside
NAME.txt, NAME.pdf or both.

The types of fields are told from their names and values, the way of writing numbers from where the wanted amounts stand
in the text; all of it is data of the task, so that a person can look it up (`headrace tasks ls -o json`).
"""

from __future__ import annotations

import datetime
import re
import unicodedata
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from schemas.errors import TaskError, UnavailableError
from tasks.importers.reading import parse_json, read_bytes, read_text
from tasks.scripts import PROTOCOL, TOOLS, done, run
from tasks.task import Task

SET = "invoices"
HINT = "an invoices folder holds NAME.json (one object of wanted fields) beside NAME.txt or NAME.pdf"
_ID = re.compile(r"(^|_)(vat|iban|bic|zip|coc|code|barcode|id|ref|reference|number|telephone|mobile|phone)(\d*|_code)$")
_MONEY = re.compile(r"amount|price|total|net$|gross|sum|vat$|discount|tax$|balance|paid")
_PERCENT = re.compile(r"percent|(^|_)rate$")
_WRITINGS = ((".", ",' "), (",", ". '"))
_SYMBOLS = {"EUR": "€", "USD": "$", "GBP": "£", "PLN": "zł", "JPY": "¥", "INR": "₹", "CZK": "Kč"}


class _Number(str):
    """A JSON number as it was written."""


def load(path: str | Path) -> list[Task]:
    """All invoices of the folder, by name. The first that is broken stops the import."""
    path = Path(path)
    found = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not found:
        raise TaskError("the folder holds no NAME.json", where=str(path), hint=HINT)
    return [_task(one) for one in found]


def _task(path: Path) -> Task:
    wanted = _wanted(path)
    files, source = _files(path)
    text = files[source].decode()
    fields = {name: _field(name, value, f"{path} $.{name}") for name, value in wanted.items()}
    decimal, group = _writing(text, fields)
    currency = wanted.get("currency")
    symbols = [currency, *filter(None, [_SYMBOLS.get(currency)])] if isinstance(currency, str) and currency else []
    return Task(
        task_id=f"invoice-{path.stem}", kind="documents", set=SET, prompt=_prompt(sorted(files), fields), tools=TOOLS,
        files=files, expected_duration_s=1.0,
        hidden={"fields": fields, "decimal": decimal, "group": group, "dates": _dates(text, fields),
                "currencies": symbols, "sources": [source],
                "sums": _sums(fields)},
        reference=[run(f"cat '{source}'"), done(read_text(path, HINT).strip())])


def _wanted(path: Path) -> dict[str, Any]:
    value = parse_json(read_text(path, HINT), str(path), HINT, parse_float=_Number, parse_int=_Number)
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, dict) or not value:
        raise TaskError("not one object of wanted fields", where=str(path), hint=HINT)
    return value


def _files(path: Path) -> tuple[dict[str, bytes], str]:
    """The document's files, and the one that holds its text; a PDF alone gets a text beside it."""
    text, pdf = path.with_suffix(".txt"), path.with_suffix(".pdf")
    files = {one.name: read_bytes(one, HINT) for one in (text, pdf) if one.exists()}
    if not files:
        raise TaskError("there is no document beside the wanted fields", where=str(path), hint=HINT)
    if text.name in files:
        read_text(text, HINT)  # Names what is not UTF-8.
    else:
        files[text.name] = _text_of_pdf(pdf, files[pdf.name]).encode()
    return files, text.name


def _text_of_pdf(path: Path, data: bytes) -> str:
    import base64

    from tasks.documents_pdf import read_pdf

    try:
        read = read_pdf(base64.b64encode(data).decode())
    except ImportError:
        raise UnavailableError("PDF documents need the package pypdf", where=str(path),
                               hint="pip install 'headrace[documents]'") from None
    if "problem" in read:
        raise TaskError(f"the document is {read['problem']}", where=str(path), hint=HINT)
    return "\n".join(read["pages"])


def _field(name: str, value: Any, where: str) -> dict[str, Any]:
    if isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
        columns: dict[str, str] = {}
        for row in value:
            for key, item in row.items():
                columns[key] = _wider(columns.get(key), _type(key, item, f"{where}.{key}"))
        return {"type": "items", "of": columns,
                "want": [{key: _text(item) for key, item in row.items() if item is not None} for row in value]}
    if isinstance(value, list):
        kinds = [_type(name, item, where) for item in value]
        return {"type": _widest(kinds), "want": [_text(item) for item in value]}
    return {"type": _type(name, value, where), "want": None if value is None else _text(value)}


def _widest(kinds: list[str]) -> str:
    kind = kinds[0] if kinds else "text"
    for other in kinds[1:]:
        kind = _wider(kind, other)
    return kind


def _wider(one: str | None, other: str) -> str:
    """The type of a column whose values look like two: an empty text fits ids and texts alone."""
    if one is None or one == other:
        return other
    if {one, other} <= {"id", "number"}:
        return "id"
    return "text" if "text" in (one, other) or "id" in (one, other) else "money"


def _type(name: str, value: Any, where: str) -> str:
    if isinstance(value, bool):
        return "flag"
    if isinstance(value, dict | list):
        raise TaskError("values nested deeper than rows of a list", where=where, value=value, hint=HINT)
    text = "" if value is None else str(value)
    plain = re.fullmatch(r"-?\d+(\.\d+)?", text, re.ASCII)
    if _PERCENT.search(name) and re.fullmatch(r"-?\d+(\.\d+)? ?%?", text, re.ASCII):
        return "percent"
    if isinstance(value, _Number):
        if "." not in text and (len(text) > 6 or (_ID.search(name) and not _MONEY.search(name))):
            return "id"
        return "money" if _MONEY.search(name) else "number"
    if _is_date(text):
        return "date"
    if _ID.search(name):
        return "id"
    return "money" if plain and _MONEY.search(name) else "text"


def _is_date(text: str) -> bool:
    try:
        return len(text) == 10 and bool(datetime.date.fromisoformat(text))
    except ValueError:
        return False


def _text(value: Any) -> str:
    """Canonical text of a wanted value; a percent sign goes, its type says it."""
    if isinstance(value, bool):
        return str(value).lower()
    return re.sub(r"^(-?\d+(?:\.\d+)?) ?%$", r"\1", str(value), flags=re.ASCII)


def _writing(text: str, fields: dict[str, Any]) -> tuple[str, str]:
    """Decimal mark and group marks under which most of the wanted amounts stand in the text."""
    amounts = [Decimal(want) for want in _amounts(fields)]

    def found(writing: tuple[str, str]) -> int:
        decimal, groups = writing
        return sum(any(_written(amount, decimal, group) in plain for group in groups) or
                   _written_by_lakhs(amount, decimal) in plain for amount in amounts)

    plain = unicodedata.normalize("NFKC", text)
    return max(_WRITINGS, key=found)


def _dates(text: str, fields: dict[str, Any]) -> str:
    """`dmy` or `mdy`: the order in which more of the wanted dates stand in the text; empty where it does not show."""
    days = [datetime.date.fromisoformat(field["want"]) for field in fields.values()
            if field["type"] == "date" and isinstance(field["want"], str)]
    written = {"dmy": "{0.day}[/-]0?{0.month}[/-]{0.year}", "mdy": "{0.month}[/-]0?{0.day}[/-]{0.year}"}
    found = {order: sum(bool(re.search(rf"\b0?{form.format(day)}\b", text)) for day in days)
             for order, form in written.items()}
    return "" if found["dmy"] == found["mdy"] else max(found, key=lambda order: found[order])


def _amounts(fields: dict[str, Any]) -> Iterator[str]:
    for field in fields.values():
        wants = field["want"] if isinstance(field["want"], list) else [field["want"]]
        for want in wants:
            if isinstance(want, dict):
                yield from (item for key, item in want.items() if field["of"][key] == "money")
            elif field["type"] == "money" and want:
                yield want


def _written(amount: Decimal, decimal: str, group: str) -> str:
    whole, _, part = f"{abs(amount):,.2f}".partition(".")
    return f"{whole.replace(',', group)}{decimal}{part}"


def _written_by_lakhs(amount: Decimal, decimal: str) -> str:
    """As in India: groups of two before the last three digits."""
    whole, _, part = f"{abs(amount):.2f}".partition(".")
    return f"{re.sub(r'(?<=[0-9])(?=(?:[0-9]{2})*[0-9]{3}$)', ',', whole)}{decimal}{part}"


def _sums(fields: dict[str, Any]) -> list[list[str]]:
    """The sums that hold among the wanted amounts."""
    sums = []
    for parts, whole in ((["amount_untaxed", "amount_tax"], "amount"), (["lines.price_subtotal"], "amount_untaxed"),
                         (["lines.price_subtotal"], "amount")):
        amounts = [_column(fields, name) for name in [*parts, whole]]
        if all(amounts) and sum(sum(part) for part in amounts[:-1]) == sum(amounts[-1]):
            sums.append([*parts, whole])
    return sums


def _column(fields: dict[str, Any], name: str) -> list[Decimal]:
    field, _, column = name.partition(".")
    found = fields.get(field, {"type": "", "want": None})
    if column:
        rows = found["want"] if found["type"] == "items" else []
        return [Decimal(row[column]) for row in rows if column in row]
    return [Decimal(found["want"])] if found["type"] == "money" and isinstance(found["want"], str) else []


def _prompt(files: list[str], fields: dict[str, Any]) -> str:
    asked = "\n".join(f"* {name}: {_asked(field)}" for name, field in fields.items())
    return (f"Read the document ({' and '.join(files)}) and hand in one JSON object with these keys; null for what the "
            f"document does not say.\n{asked}\n\nNumbers as JSON numbers, or text as the document writes them; dates "
            f"as YYYY-MM-DD.\n\n{PROTOCOL}")


def _asked(field: dict[str, Any]) -> str:
    if field["type"] == "items":
        return "list of rows with " + ", ".join(f"{key} ({kind})" for key, kind in field["of"].items())
    return f"list of {field['type']}" if isinstance(field["want"], list) else field["type"]
