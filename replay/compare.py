"""Two versions of the same rows, as events say them (`here`) and as the lake has them (`there`)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import pyarrow as pa

Key = tuple[Any, ...]
"""Offset, then what tells rows of one event apart."""
_KEYS = ("offset", "episode_id", "segment", "sequence", "position")
_Found = dict[Key, list[dict[str, Any]]]


class Compared:
    """One table of one partition."""

    def __init__(self, here: pa.Table, there: pa.Table) -> None:
        self._keys = [name for name in _KEYS if name in here.column_names]
        self._rows = here
        self._here, self._there = self._sorted(here), self._sorted(there.cast(here.schema))

    def _sorted(self, rows: pa.Table) -> pa.Table:
        return rows.sort_by([(name, "ascending") for name in self._keys]).combine_chunks()

    @cached_property
    def equal(self) -> bool:
        return bool(self._here.equals(self._there))

    @cached_property
    def here(self) -> _Found:
        return self._by_key(self._here)

    @cached_property
    def there(self) -> _Found:
        return self._by_key(self._there)

    def missing(self) -> pa.Table:
        """Rows of events that the lake has no row of at all."""
        if self.equal:
            return self._rows.slice(0, 0)
        have = {key[0] for key in self.there}
        return self._rows.filter(pa.array([offset not in have for offset in self._rows["offset"].to_pylist()],
                                          pa.bool_()))

    def differences(self) -> Iterator[tuple[Key, str, str]]:
        """Key, what differs (a column, or `rows`), and how."""
        if self.equal:
            return
        for key in sorted(self.here.keys() | self.there.keys(), key=repr):
            mine, theirs = self.here.get(key, []), self.there.get(key, [])
            if len(mine) == len(theirs) == 1:
                for name, value in mine[0].items():
                    if repr(theirs[0][name]) != repr(value):
                        yield key, name, f"`{name}` is {_short(theirs[0][name])}, its event says {_short(value)}"
            elif sorted(map(repr, mine)) != sorted(map(repr, theirs)):
                yield key, "rows", f"there are {len(theirs)} rows, its event makes {len(mine)}"

    def _by_key(self, rows: pa.Table) -> _Found:
        found: _Found = {}
        for row in _readable(rows).to_pylist():
            found.setdefault(tuple(row[name] for name in self._keys), []).append(row)
        return found


def _readable(rows: pa.Table) -> pa.Table:
    """Times as text: a column that was changed may hold one that is no date."""
    for index, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type):
            rows = rows.set_column(index, field.name, rows.column(index).cast(pa.string()))
    return rows


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
