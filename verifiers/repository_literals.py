"""Which statements of a test compare something with a literal, and how. Nothing of a test is run here."""

from __future__ import annotations

import ast
import copy
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from verifiers import values

_UNITTEST = {"assertEqual": "eq", "assertEquals": "eq", "assertListEqual": "eq", "assertDictEqual": "eq",
             "assertTupleEqual": "eq", "assertSetEqual": "eq", "assertSequenceEqual": "eq",
             "assertMultiLineEqual": "eq", "assertAlmostEqual": "near", "assertIn": "in", "assertIs": "is"}
_OPERATORS: dict[type[ast.cmpop], str] = {ast.Eq: "eq", ast.Is: "is", ast.In: "in"}
_BOUND_ELSEWHERE = 1000
_FOLDED = 10_000
"""No larger operand is multiplied."""
_FOLDS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}


class Comparison(NamedTuple):
    kind: str
    """`eq`, `is`, `in` (the wanted value is in what came), `near` (within `tolerance`)."""
    got: ast.expr
    wanted: ast.expr
    """A literal or a name."""
    flipped: bool = False
    """The wanted value stands on the left."""
    tolerance: tuple[float, float] = (0.0, 0.0)
    """Relative and absolute."""


def literal_of(node: ast.expr) -> tuple[Any] | None:
    """The plain value that an expression stands for; sums and products of literals are folded."""
    try:
        value = ast.literal_eval(_folded(node))
        values.encode(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    return (value,)


def _folded(node: ast.expr) -> ast.expr:
    if not any(isinstance(inner, ast.BinOp) for inner in ast.walk(node)):
        return node
    folded: ast.expr = _Folding().visit(copy.deepcopy(node))
    return folded


class _Folding(ast.NodeTransformer):
    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        sides: list[Any] = [side.value for side in (node.left, node.right) if isinstance(side, ast.Constant)]
        if len(sides) == 2 and all(type(side) in (int, float, str, bytes) for side in sides):
            one, other = sides
            large = any(abs(side) > _FOLDED if isinstance(side, int | float) else len(side) > _FOLDED for side in sides)
            fold = None if large else _FOLDS.get(type(node.op))
            if fold is not None:
                return ast.copy_location(ast.Constant(fold(one, other)), node)
        return node


def comparison_of(node: ast.stmt) -> Comparison | None:
    if isinstance(node, ast.Assert):
        test = node.test
        kind = _OPERATORS.get(type(test.ops[0])) if isinstance(test, ast.Compare) and len(test.ops) == 1 else None
        return _of_sides(kind, test.left, test.comparators[0]) if kind and isinstance(test, ast.Compare) else None
    call = node.value if isinstance(node, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or len(call.args) not in (2, 3):
        return None
    owner, kind = call.func.value, _UNITTEST.get(call.func.attr)
    if kind is None or not isinstance(owner, ast.Name) or owner.id != "self":
        return None
    return _of_method(kind, call)


def all_of(node: ast.stmt) -> list[Comparison]:
    """The comparisons of `assert a == 1 and b == 2`, if all of them are with literals."""
    test = node.test if isinstance(node, ast.Assert) else None
    if not isinstance(test, ast.BoolOp) or not isinstance(test.op, ast.And):
        return []
    found = [comparison_of(ast.Assert(test=one)) for one in test.values]
    made = [one for one in found if one and (want := literal_of(one.wanted)) and comparable(one.kind, want[0])]
    return made if len(made) == len(found) else []


def _of_method(kind: str, call: ast.Call) -> Comparison | None:
    keywords = {one.arg: _number(one.value) for one in call.keywords if one.arg != "msg"}
    if kind != "near":
        return None if keywords else _of_sides(kind, call.args[0], call.args[1])
    if len(call.args) == 3:
        keywords["places"] = _number(call.args[2])
    if set(keywords) - {"places", "delta"} or None in keywords.values():
        return None
    absolute = keywords.get("delta", 0.5 * 10.0 ** -(keywords.get("places", 7) or 0))
    found = _of_sides("eq", call.args[0], call.args[1])
    return found and found._replace(kind="near", tolerance=(0.0, float(absolute or 0.0)))


def _of_sides(kind: str, left: ast.expr, right: ast.expr) -> Comparison | None:
    sides = ((right, left, True),) if kind == "in" else ((left, right, False), (right, left, True))
    for got, wanted, flipped in sides:
        if literal_of(got) is not None or isinstance(got, ast.Starred):
            continue
        if literal_of(wanted) is not None:
            return Comparison(kind, got, wanted, flipped)
        if kind == "eq" and (about := _approximate(wanted)) is not None:
            return about._replace(got=got, flipped=flipped)
    named = [(got, wanted, flipped) for got, wanted, flipped in sides if isinstance(wanted, ast.Name)]
    return Comparison(kind, *named[0]) if named and not isinstance(named[0][0], ast.Starred) else None


def _approximate(node: ast.expr) -> Comparison | None:
    """`pytest.approx(0.3, rel=…, abs=…)`."""
    if not isinstance(node, ast.Call) or ast.unparse(node.func) not in ("pytest.approx", "approx") or not node.args:
        return None
    given: dict[str | None, float | None] = dict(zip(("rel", "abs"), map(_number, node.args[1:]), strict=False))
    given |= {one.arg: _number(one.value) for one in node.keywords}
    if literal_of(node.args[0]) is None or set(given) - {"rel", "abs"} or None in given.values():
        return None
    relative = given.get("rel", 0.0 if "abs" in given else 1e-6)
    return Comparison("near", node, node.args[0], False, (float(relative or 0.0), float(given.get("abs", 1e-12) or 0)))


def _number(node: ast.expr) -> float | None:
    found = literal_of(node)
    return found[0] if found and isinstance(found[0], int | float) else None


def comparable(kind: str, want: Any) -> bool:
    """Whether values that come can be compared with this one outside."""
    if kind == "near":
        return all(isinstance(one, int | float) for one in (want if isinstance(want, list | tuple) else [want]))
    return (want is None or isinstance(want, bool)) if kind == "is" else want == want


def named_literals(body: Sequence[ast.stmt]) -> dict[str, ast.expr]:
    """Names that this level binds to a literal."""
    return {node.targets[0].id: node.value for node in body
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
            and literal_of(node.value) is not None}


def uses_of(name: str, scope: ast.AST) -> int:
    """How often a name is read, but for the messages of assertions; very often where it is bound more than once."""
    nodes = [node for node in _without_messages(scope) if isinstance(node, ast.Name) and node.id == name]
    stored = sum(not isinstance(node.ctx, ast.Load) for node in nodes)
    stored += sum(isinstance(node, ast.arg) and node.arg == name for node in ast.walk(scope))
    return len(nodes) - sum(not isinstance(node.ctx, ast.Load) for node in nodes) if stored == 1 else _BOUND_ELSEWHERE


def _without_messages(scope: ast.AST) -> Iterator[ast.AST]:
    waiting: list[ast.AST] = [scope]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += [node.test] if isinstance(node, ast.Assert) else ast.iter_child_nodes(node)
