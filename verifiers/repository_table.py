"""The rows of a test's `parametrize`, and the ids that pytest gives them."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any, NamedTuple

from verifiers.repository_literals import literal_of
from verifiers.repository_source import Edit, Source


class Table(NamedTuple):
    call: ast.Call
    names: list[str]
    cells: list[list[ast.expr]]
    ids: list[str]
    named_ids: ast.expr | None

    def column(self, name: str) -> list[ast.expr]:
        return [row[self.names.index(name)] for row in self.cells]

    def values(self, name: str) -> tuple[Any, ...]:
        return tuple(_value(cell) for cell in self.column(name))

    def with_ids(self, source: Source, ids: Sequence[str]) -> Edit:
        text = ("[" + ", ".join(map(repr, ids)) + "]").encode()
        if self.named_ids is not None:
            return source.instead(self.named_ids, text)
        end = source.end(self.call.args[-1])
        return Edit(end, end, b", ids=" + text)


def table_of(node: ast.FunctionDef, source: Source) -> Table | None:
    """The parameters of a test, if one decorator gives them and they are all literals."""
    calls = [one for one in node.decorator_list if "parametrize" in source.text(one)]
    if len(calls) != 1 or not isinstance(calls[0], ast.Call) or len(calls[0].args) != 2:
        return None
    call, keywords = calls[0], {one.arg: one.value for one in calls[0].keywords}
    said, rows = literal_of(call.args[0]), call.args[1]
    if said is None or set(keywords) - {"ids"} or not isinstance(rows, ast.List | ast.Tuple) or not rows.elts:
        return None
    names = [name.strip() for name in said[0].split(",")] if isinstance(said[0], str) else list(said[0])
    cells = [[row] if len(names) == 1 else list(row.elts) if isinstance(row, ast.List | ast.Tuple) else []
             for row in rows.elts]
    if any(len(row) != len(names) or any(literal_of(cell) is None for cell in row) for row in cells):
        return None
    given = literal_of(keywords["ids"]) if "ids" in keywords else (None,)
    ids = _ids(names, [[_value(cell) for cell in row] for row in cells], given[0]) if given else None
    return Table(call, names, cells, ids, keywords.get("ids")) if ids else None


def _value(cell: ast.expr) -> Any:
    found = literal_of(cell)
    assert found
    return found[0]


def _ids(names: Sequence[str], rows: Sequence[Sequence[Any]], given: Any) -> list[str] | None:
    """The ids that pytest would give to these rows; None if that cannot be told."""
    from _pytest.mark.structures import ParameterSet
    from _pytest.python import IdMaker

    try:
        ids = IdMaker(names, [ParameterSet(values=list(row), marks=[], id=None) for row in rows], None, given, None,
                      None).make_unique_parameterset_ids()
    except Exception:  # No part of its public interface: where it has changed, nothing is sealed.
        return None
    return [str(one) for one in ids] if len(ids) == len(rows) and all(isinstance(one, str) for one in ids) else None
