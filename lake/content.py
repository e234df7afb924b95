"""What a lake holds, as one number for each table: equal numbers mean equal rows, in whatever order and files they lie.

Invariants. The hash is a sum over rows, so order, files and compaction do not matter, and a doubled row does. Rows are
those that today's log would become: a dead letter that was redriven and the mark on its event count as what they are
now (see `lake/redrive.py`), so a lake that was redriven and one that was built anew are equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from schemas.tables import TABLES

if TYPE_CHECKING:
    from lake.lake import Lake

CONTENT_TABLES = tuple(name for name in TABLES if name != "redrives")
_REDRIVEN = '(select distinct topic, partition, "offset" from raw_redrives)'
_MARKED = f"""
select e.* replace (case when r.topic is not null and e.reason = 'schema_violation' then '' else e.reason end as reason)
from raw_events e left join {_REDRIVEN} r using (topic, partition, "offset")
"""
_LETTERS = f'select * from raw_dead_letters anti join {_REDRIVEN} using (topic, partition, "offset")'


class Content(NamedTuple):
    rows: int
    hash: str


def resolved(table: str) -> str:
    """The rows of a table as a query: what its log would become today."""
    return {"events": _MARKED, "dead_letters": _LETTERS}.get(table, f"select * from raw_{table}")


def content(lake: Lake, as_of: Mapping[str, int] | None = None,
            tables: Iterable[str] = CONTENT_TABLES) -> dict[str, Content]:
    """Rows and hash of tables at one snapshot, by default the present."""
    snapshot = lake.snapshot() if as_of is None else as_of
    return {table: _content(lake, table, snapshot) for table in tables}


def _content(lake: Lake, table: str, as_of: Mapping[str, int]) -> Content:
    columns = ", ".join(f'"{field.name}"' for field in TABLES[table])
    row = lake.sql(f"""select count(*) as n, coalesce(sum(md5_number_lower(line)), 0)::varchar as low,
        coalesce(sum(md5_number_upper(line)), 0)::varchar as high
        from (select row({columns})::varchar as line from ({resolved(table)}))""", as_of).to_pylist()[0]
    return Content(row["n"], f"{int(row['high']) % 2**64:016x}{int(row['low']) % 2**64:016x}")
