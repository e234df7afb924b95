"""Tables to the terminal or to a pipe. What an agent wrote is untrusted: control characters never reach a terminal."""

from __future__ import annotations

import base64
import csv
import datetime
import json
import math
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from schemas.errors import QueryError

if TYPE_CHECKING:
    import pyarrow as pa

_WIDEST_CELL = 60


def print_table(table: pa.Table, style: str = "table", limit: int | None = None, file: TextIO | None = None) -> None:
    """Print an Arrow table as `table`, `json`, `jsonl` or `csv`."""
    file = file or sys.stdout
    if limit is not None:
        table = table.slice(0, limit)
    columns = [_values(column) for column in table.columns]
    print_rows(list(table.column_names), ([plain(value) for value in row] for row in zip(*columns, strict=True)),
               style, file)


def print_rows(names: Sequence[str], rows: Iterable[Sequence[Any]], style: str, file: TextIO | None = None) -> None:
    """The same for rows of plain values."""
    file = file or sys.stdout
    shown = safe if file.isatty() else str
    if style == "json":
        objects = [dict(zip(names, row, strict=True)) for row in rows]
        print(shown(json.dumps(objects, indent=2, ensure_ascii=False)), file=file)
    elif style == "jsonl":
        for row in rows:
            print(shown(json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False)), file=file)
    elif style == "csv":
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([shown(_cell(value)) if isinstance(value, dict | list | str) else value for value in row]
                         for row in rows)
    else:
        _print_columns(names, list(rows), file)


def print_tables(tables: Mapping[str, pa.Table], style: str, limit: int | None = None) -> None:
    """Several tables: one JSON object by name; else one after the other, each under its name or a column `table`."""
    import pyarrow as pa

    if style == "json":
        shown = safe if sys.stdout.isatty() else str
        document = {name: _objects(table.slice(0, limit)) for name, table in tables.items()}
        print(shown(json.dumps(document, indent=2, ensure_ascii=False)))
        return
    for number, (name, table) in enumerate(tables.items()):
        if style == "table":
            print(f"{name}" if not number else f"\n{name}")
        elif style == "jsonl":
            table = table.add_column(0, "table", pa.array([name] * table.num_rows, pa.string()))
        elif number:
            print()
        print_table(table, style, limit)


def _objects(table: pa.Table) -> list[dict[str, Any]]:
    columns = [_values(column) for column in table.columns]
    return [dict(zip(table.column_names, map(plain, row), strict=True)) for row in zip(*columns, strict=True)]


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Python's, or texts of times that Python does not have (the year 10000). Raises QueryError."""
    import pyarrow as pa

    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError) as wrong:
        try:
            return list(column.cast(pa.string()).to_pylist())
        except pa.ArrowException:
            raise QueryError(f"a value cannot be shown ({wrong})", value=str(column.type),
                             hint="cast it to text in the query") from None


def plain(value: Any) -> Any:
    """A JSON value: times as ISO 8601 UTC, intervals as in SQL, bytes as base64, maps as objects, NaN as null."""
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list):
        if value and all(isinstance(item, tuple) and len(item) == 2 for item in value):
            return {str(key): plain(item) for key, item in value}
        return [plain(item) for item in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    if hasattr(value, "nanoseconds"):  # Arrow's interval, which DuckDB makes of a difference of times.
        return _interval(value.months, value.days, value.nanoseconds)
    return str(value)


def _interval(months: int, days: int, nanoseconds: int) -> str:
    named = [f"{count} {unit}" for count, unit in ((months, "months"), (days, "days")) if count]
    sign = "-" if nanoseconds < 0 else ""
    time = f"{sign}{datetime.timedelta(microseconds=abs(nanoseconds) // 1000)}"
    return " ".join([*named, time] if nanoseconds or not named else named)


def counted(count: int, noun: str) -> str:
    """`1 task`, `2 tasks`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def safe(text: str) -> str:
    """Text without control, escape and direction-changing characters."""
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)


def in_line(text: str) -> str:
    """Safe text without line breaks, so that it cannot pass for a line of ours."""
    return safe(text).replace("\n", " ")


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def _print_columns(names: Sequence[str], rows: Iterable[Sequence[Any]], file: TextIO) -> None:
    wide = not file.isatty()
    cells = [[_shorten(in_line(_cell(value)), wide) for value in row] for row in rows]
    widths = [max([len(name), *(len(row[i]) for row in cells)]) for i, name in enumerate(names)]
    for line in [list(names), ["-" * width for width in widths], *cells]:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip(), file=file)


def _shorten(text: str, wide: bool) -> str:
    longest = 10_000 if wide else min(_WIDEST_CELL, shutil.get_terminal_size().columns)
    return text if len(text) <= longest else text[: longest - 1] + "…"
