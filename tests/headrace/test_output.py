"""Printing tables: every style, and nothing that an agent wrote reaches the terminal as control."""

from __future__ import annotations

import csv
import datetime
import io
import json

import pyarrow as pa
import pytest

from headrace.output import in_line, plain, print_table, safe
from schemas.errors import QueryError

TABLE = pa.table(
    {
        "id": ["a", "b"],
        "reward": pa.array([0.5, None], pa.float64()),
        "components": pa.array([[("x", 1.0)], None], pa.map_(pa.string(), pa.float64())),
        "at": pa.array(
            [datetime.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=datetime.UTC), None], pa.timestamp("us", "UTC")
        ),
    }
)


def printed(style: str, limit: int | None = None) -> str:
    file = io.StringIO()
    print_table(TABLE, style, limit, file)
    return file.getvalue()


def test_json_and_jsonl_agree_and_null_is_not_zero() -> None:
    rows = json.loads(printed("json"))
    assert rows == [json.loads(line) for line in printed("jsonl").splitlines()]
    assert rows[0] == {"id": "a", "reward": 0.5, "components": {"x": 1.0}, "at": "2026-01-02T03:04:05.000006Z"}
    assert rows[1]["reward"] is None


def test_csv_has_a_header_and_every_row() -> None:
    rows = list(csv.reader(io.StringIO(printed("csv"))))
    assert rows[0] == TABLE.column_names
    assert [row[0] for row in rows[1:]] == ["a", "b"]


def test_limit_cuts_rows() -> None:
    assert len(printed("table", limit=1).splitlines()) == 3


@pytest.mark.parametrize("text", ["\x1b[2J", "\x9b31m", "a\rb", "\u202eabc", "\x07", "\x00"])
def test_control_and_direction_characters_are_replaced(text: str) -> None:
    assert safe(text).isprintable()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("style", ["table", "csv", "json", "jsonl"])
def test_no_style_brings_control_characters_to_a_terminal_and_pipes_keep_them(style: str) -> None:
    table = pa.table({"text": ["\x1b[2J\x9b31m\u202e"], "many": [["\x9b"]]})
    terminal, pipe = Terminal(), io.StringIO()
    print_table(table, style, file=terminal)
    print_table(table, style, file=pipe)
    assert all(line.isprintable() for line in terminal.getvalue().splitlines())
    assert style == "table" or "\x9b" in pipe.getvalue()


def test_text_in_a_line_cannot_make_a_line() -> None:
    assert in_line("a\nfinished: completed") == "a finished: completed"


@pytest.mark.parametrize("interval, shown", [
    ((0, 0, 4_309_838_000), "0:00:04.309838"), ((0, 0, -1_000_000_000), "-0:00:01"), ((0, 0, 0), "0:00:00"),
    ((2, 1, 0), "2 months 1 days"), ((0, 3, 60_000_000_000), "3 days 0:01:00"),
])
def test_a_difference_of_times_reads_as_one(interval: tuple[int, int, int], shown: str) -> None:
    assert plain(pa.MonthDayNano(interval)) == shown


def test_times_that_python_does_not_have_are_shown_and_columns_of_one_name_too() -> None:
    far = pa.table([pa.array([253_402_300_800_000_000], pa.timestamp("us", tz="UTC")), pa.array([1]), pa.array([2])],
                   names=["at", "n", "n"])
    out = io.StringIO()
    print_table(far, "csv", file=out)
    assert out.getvalue().splitlines()[0] == "at,n,n"
    assert out.getvalue().splitlines()[1].startswith("10000-01-01") and out.getvalue().endswith(",1,2\n")
    nested = pa.table({"at": pa.array([[253_402_300_800_000_000]], pa.list_(pa.timestamp("us", tz="UTC")))})
    with pytest.raises(QueryError, match="cannot be shown"):
        print_table(nested, "csv", file=out)
