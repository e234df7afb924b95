"""Tool calls written as Python: `f(a=1, b='x')`. Literals only, JSON's `true`, `false`, `null` too; nothing is run."""

from __future__ import annotations

import ast
from typing import Any, NamedTuple

TEXT_LIMIT = 100_000


class PythonCall(NamedTuple):
    name: str
    positional: list[Any]
    named: dict[str, Any]


def parse_calls(text: str) -> list[PythonCall]:
    """One call, a list of calls, or one call a line. Raises ValueError with what is wrong."""
    if len(text) > TEXT_LIMIT:
        raise ValueError("too long")
    try:
        lines = [line.value if isinstance(line, ast.Expr) else None for line in ast.parse(text.strip()).body]
        nodes = lines[0].elts if len(lines) == 1 and isinstance(lines[0], ast.List | ast.Tuple) else lines
        return [_call(node) for node in nodes]
    except (SyntaxError, RecursionError, MemoryError) as wrong:
        raise ValueError(f"not a call ({wrong})") from None


def _call(node: ast.expr | None) -> PythonCall:
    if not isinstance(node, ast.Call) or any(keyword.arg is None for keyword in node.keywords):
        raise ValueError("not a call with plain arguments")
    named = {str(keyword.arg): _literal(keyword.value) for keyword in node.keywords}
    if len(named) != len(node.keywords):
        raise ValueError("an argument stands there twice")
    return PythonCall(_name(node.func), [_literal(value) for value in node.args], named)


def _literal(node: ast.expr) -> Any:
    """As JSON would hold it: tuples are lists."""
    return _listed(ast.literal_eval(_Constants().visit(node)))


class _Constants(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.expr:
        """As JSON names them."""
        known = {"true": True, "false": False, "null": None}
        return ast.Constant(known[node.id]) if node.id in known else node


def _listed(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_listed(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _listed(item) for key, item in value.items()}
    return value


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_name(node.value)}.{node.attr}"
    if isinstance(node, ast.Name):
        return node.id
    raise ValueError("the function has no name")


def named_arguments(call: PythonCall, parameters: list[str]) -> dict[str, Any]:
    """All arguments by name; positional ones in the order of the parameters. Raises ValueError."""
    if len(call.positional) > len(parameters):
        raise ValueError(f"{call.name} takes {len(parameters)} arguments")
    given = dict(zip(parameters, call.positional, strict=False))
    if twice := set(given) & set(call.named):
        raise ValueError(f"{call.name} gets {sorted(twice)[0]} twice")
    return given | call.named
