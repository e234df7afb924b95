"""Ids from prefixes and names as they are recorded, with an error that says what would have matched."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from schemas.errors import NotFoundError, UserError

if TYPE_CHECKING:
    from lake.lake import Lake


def full_id(lake: Lake, table: str, column: str, prefix: str, noun: str, listing: str) -> str:
    """The one id of `table` that starts with `prefix`. Raises NotFoundError or, if several do, UserError."""
    found = (
        lake.sql(
            f"select distinct {column} as id from {table} where starts_with({column}, $prefix) order by 1 limit 3",
            parameters={"prefix": prefix},
        )
        .column("id")
        .to_pylist()
    )
    if not found:
        raise NotFoundError(f"no such {noun}", value=prefix, hint=f"`{listing}` lists them")
    if len(found) > 1 and found[0] != prefix:
        raise UserError(f"several {noun}s start so", value=prefix, hint=f"e.g. {found[0]} and {found[1]}")
    return str(found[0])


def full_run_id(lake: Lake, prefix: str) -> str:
    """The one run that starts so; empty stays empty, for every run."""
    return full_id(lake, "requests", "run_id", prefix, "run", "headrace status") if prefix else ""


def known(lake: Lake, table: str, column: str, value: str, noun: str) -> str:
    """`value`, if `table` has it in `column` or it is empty. Raises NotFoundError, else an empty list would lie."""
    names = lake.sql(f"select distinct {column} as name from {table} order by 1").column("name").to_pylist()
    if value and value not in names:
        close = difflib.get_close_matches(value, names, n=1)
        among = f"recorded: {', '.join(names)}" if names else "nothing is recorded yet"
        raise NotFoundError(f"no such {noun}", value=value, hint=f"did you mean `{close[0]}`?" if close else among)
    return value
