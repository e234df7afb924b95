"""Full ids from prefixes, with an error that says what would have matched."""

from __future__ import annotations

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
