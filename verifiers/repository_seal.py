"""Takes the wanted values out of test files before these go where the submission's code runs.

`assert f(x) == 3` becomes a call that reports what `f(x)` gave; the 3 stays here, and the comparison is made here. So
whoever takes the test process over can forge every report of it but not these values: they are nowhere in it. What is
taken out: literals that an `assert` or a method of `unittest` compares with, directly, through a name that stands for a
literal and serves for nothing else, or through such a column of `parametrize`.

A place is sealed only where a test that passes must come by, a known number of times: not in branches, nested
functions or loops over anything but a literal, and in no test that expects an assertion to fail. All else stays as it
was, and every line keeps its number.
"""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import Any, NamedTuple

from schemas.ids import digest
from verifiers.repository_literals import (
    Comparison,
    all_of,
    comparable,
    comparison_of,
    literal_of,
    named_literals,
    uses_of,
)
from verifiers.repository_source import Edit, Source, edited
from verifiers.repository_table import table_of

VALUE = "__headrace_value__"
ROUNDS_LIMIT = 100
_EASY: tuple[Any, ...] = (None, True, False, 0, 1, -1, 2, "", b"", (), [], {}, 0.0, 1.0)
"""What anyone would guess."""
_HARMLESS = ("pytest.mark.", "mark.", "mock.", "patch", "unittest.", "skip", "staticmethod")
_SWALLOWS = ("raises", "Raises", "suppress")
_AGAINST = ("xfail", "AssertionError", "yield", "expectedFailure")
_TOKEN = re.compile(r"h[0-9a-f]{12}\d{5}")


class Place(NamedTuple):
    """One comparison that is made outside."""

    line: int
    asked: Comparison
    wants: tuple[Any, ...]
    """By row of the parameters; one alone where there are none."""
    times: int
    """How often a test that passes comes by."""

    def want(self, row: int) -> Any:
        return self.wants[row if len(self.wants) > 1 else 0]

    def is_hard(self, row: int) -> bool:
        want = self.want(row)
        return not any(type(want) is type(easy) and want == easy for easy in _EASY)


class Sealed(NamedTuple):
    source: bytes
    places: dict[int, Place]
    tests: dict[str, list[int]]
    """The places of each function, by its name (`test_x`, `Class::test_x`)."""
    tokens: dict[str, tuple[int, str]]
    """What stands for an id of parameters that would tell a wanted value: its row and that id."""

    def told(self, node_id: str) -> tuple[str, int]:
        """The id as the task has it, and the row of its parameters."""
        found = _TOKEN.search(node_id)
        row, name = self.tokens.get(found[0], (0, found[0])) if found else (0, "")
        return (node_id.replace(found[0], name), row) if found else (node_id, 0)


def seal(data: bytes, tests: Sequence[str], first: int, secret: str) -> Sealed:
    """`tests`: names of functions; places are numbered from `first`."""
    nothing = Sealed(data, {}, {}, {})
    try:
        if tokenize.detect_encoding(BytesIO(data).readline)[0] != "utf-8" or b"\r" in data or b"\x0c" in data:
            return nothing
        source = Source(data, ast.parse(data))
    except (SyntaxError, ValueError, RecursionError):
        return nothing
    if any("xfail" in source.text(node) or "parametrize" in source.text(node)
           for node in ast.walk(source.tree) if isinstance(node, ast.Assign) and "pytestmark" in source.text(node)):
        return nothing
    made, edits = Sealed(data, {}, {}, {}), list[Edit]()
    found = {name: node for name, node in _functions(source.tree.body, "", source) if name in set(tests)}
    for name, node in found.items():
        function = _Function(source, node, digest(f"{secret} {name}".encode())[-12:])
        made.tests[name] = []
        calls: dict[ast.stmt, list[bytes]] = {}
        for number, (statement, place) in enumerate(function.places(), start=first + len(made.places)):
            made.places[number] = place
            made.tests[name].append(number)
            calls.setdefault(statement, []).append(b"%s(%d, (%s))" % (
                VALUE.encode(), number, source.part(place.asked.got)))
        edits += [source.instead(statement, b", ".join(told)) for statement, told in calls.items()]
        made.tokens.update(function.tokens)
        edits += function.edits
    text = edited(data, edits)
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return nothing
    return made._replace(source=text)


def _functions(body: Sequence[ast.stmt], prefix: str, source: Source) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Of a module or class; of two with one name the last counts. A class whose marks change its tests is left out."""
    for node in body:
        if isinstance(node, ast.FunctionDef):
            yield prefix + node.name, node
        elif isinstance(node, ast.ClassDef) and not any(
                word in source.text(one) for one in node.decorator_list for word in (*_AGAINST, "parametrize")):
            yield from _functions(node.body, f"{prefix}{node.name}::", source)


class _Function:
    def __init__(self, source: Source, node: ast.FunctionDef, token: str) -> None:
        self.source, self.node, self.token = source, node, token
        self.edits: list[Edit] = []
        self.tokens: dict[str, tuple[int, str]] = {}
        self.table = table_of(node, source)
        self.known = {*named_literals(node.body), *named_literals(source.tree.body),
                      *(self.table.names if self.table else ())}

    def places(self) -> list[tuple[ast.stmt, Place]]:
        if not self._is_open():
            return []
        found = list(self._walk(self.node.body, 1))
        wants = {**self._names(found), **self._columns(found)}
        made = []
        for statement, asked, times in found:
            values = wants.get(asked.wanted.id) if isinstance(asked.wanted, ast.Name) else literal_of(asked.wanted)
            if values is not None and all(comparable(asked.kind, one) for one in values):
                made.append((statement, Place(statement.lineno, asked, values, times)))
        return made

    def _is_open(self) -> bool:
        first: ast.AST = self.node.decorator_list[0] if self.node.decorator_list else self.node
        text = self.source.data[self.source.start(first):self.source.end(self.node)].decode()
        return (not any(word in text for word in _AGAINST)
                and not any(isinstance(node, ast.Return | ast.Global | ast.Nonlocal) for node in ast.walk(self.node))
                and all(self.source.text(one).startswith(_HARMLESS) for one in self.node.decorator_list))

    def _walk(self, body: Sequence[ast.stmt], times: int) -> Iterator[tuple[ast.stmt, Comparison, int]]:
        for node in body:
            if isinstance(node, ast.With):
                if not any(word in self.source.text(item.context_expr) for item in node.items for word in _SWALLOWS):
                    yield from self._walk(node.body, times)
            elif isinstance(node, ast.For):
                rounds = len(node.iter.elts) if isinstance(node.iter, ast.List | ast.Tuple) else 0
                leaves = any(isinstance(inner, ast.Break | ast.Continue | ast.Starred) for inner in ast.walk(node))
                if 0 < rounds * times <= ROUNDS_LIMIT and not leaves:
                    yield from self._walk(node.body, rounds * times)
            elif (asked := comparison_of(node)) is not None:
                yield node, self._turned(asked), times
            else:
                yield from ((node, one, times) for one in all_of(node))

    def _turned(self, asked: Comparison) -> Comparison:
        """`expected == found`, where both are names: the one that stands for literals is wanted."""
        if (isinstance(asked.wanted, ast.Name) and isinstance(asked.got, ast.Name) and asked.kind != "in"
                and asked.wanted.id not in self.known and asked.got.id in self.known):
            return asked._replace(got=asked.wanted, wanted=asked.got, flipped=not asked.flipped)
        return asked

    def _names(self, found: Sequence[tuple[ast.stmt, Comparison, int]]) -> dict[str, tuple[Any, ...]]:
        """Names that stand for a literal and serve for nothing but sealed places: the literal goes."""
        kept: dict[str, tuple[Any, ...]] = {}
        for scope, body in ((self.node, self.node.body), (self.source.tree, self.source.tree.body)):
            for name, node in named_literals(body).items():
                literal = literal_of(node)
                if name not in kept and literal and self._serves(name, scope, found, literal):
                    kept[name] = literal
                    self.edits.append(self.source.instead(node))
        return kept

    def _columns(self, found: Sequence[tuple[ast.stmt, Comparison, int]]) -> dict[str, tuple[Any, ...]]:
        """Columns of `parametrize` that serve for nothing but sealed places: their values go, and ids tell nothing."""
        table, kept = self.table, dict[str, tuple[Any, ...]]()
        for name in table.names if table else ():
            assert table
            values = table.values(name)
            if self._serves(name, self.node, found, values):
                kept[name] = values
                self.edits += [self.source.instead(cell) for cell in table.column(name)]
        if table and kept:
            self.tokens = {f"h{self.token}{row:05d}": (row, told) for row, told in enumerate(table.ids)}
            self.edits.append(table.with_ids(self.source, list(self.tokens)))
        return kept

    def _serves(self, name: str, scope: ast.AST, found: Sequence[tuple[ast.stmt, Comparison, int]],
                values: tuple[Any, ...]) -> bool:
        kinds = [asked.kind for _, asked, _ in found if isinstance(asked.wanted, ast.Name) and asked.wanted.id == name]
        return (bool(kinds) and uses_of(name, scope) == len(kinds)
                and all(comparable(kind, value) for kind in kinds for value in values))
