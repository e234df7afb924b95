"""Arguments against the part of JSON schema that tools use. `1.0` is an integer, `true` is no number."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from typing import Any

from verifiers.tools_match import same

DEPTH_LIMIT = 50


def defaults_of(schema: Any) -> dict[str, Any]:
    """The arguments that a call has without naming them."""
    properties = schema.get("properties", {}) if isinstance(schema, Mapping) else {}
    return {name: one["default"] for name, one in properties.items() if isinstance(one, Mapping) and "default" in one}


def problem_of(value: Any, schema: Any, path: str = "$", depth: int = 0) -> str | None:
    """None if `value` fits; else one sentence with a JSON path."""
    if schema is True or not schema:
        return None if schema is not False else f"{path} is not allowed"
    if depth > DEPTH_LIMIT:
        return f"{path} is nested too deep"
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if value is None and schema.get("nullable") is True:
        return None
    if kinds and not any(_is(value, kind) for kind in kinds):
        return f"{path} must be {' or '.join(kinds)}, not {type(value).__name__}"
    if "enum" in schema and not any(same(value, item) for item in schema["enum"]):
        return f"{path} must be one of {schema['enum']!r}"
    if "const" in schema and not same(value, schema["const"]):
        return f"{path} must be {schema['const']!r}"
    return _combined(value, schema, path, depth) or _inner(value, schema, path, depth)


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer":
        return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    types: dict[str, type | tuple[type, ...]] = {
        "number": (int, float), "string": str, "array": list, "object": dict, "null": type(None)}
    return isinstance(value, types.get(kind, ()))


def _combined(value: Any, schema: Mapping[str, Any], path: str, depth: int) -> str | None:
    for key in ("anyOf", "oneOf", "allOf"):
        if key not in schema:
            continue
        problems = [problem_of(value, part, path, depth + 1) for part in schema[key]]
        fits = problems.count(None)
        if (fits == 0) if key == "anyOf" else (fits != 1) if key == "oneOf" else (fits < len(problems)):
            return next((problem for problem in problems if problem), f"{path} fits more than one of {key}")
    return None


def _inner(value: Any, schema: Mapping[str, Any], path: str, depth: int) -> str | None:
    if isinstance(value, dict):
        return _object(value, schema, path, depth)
    if isinstance(value, list):
        return _array(value, schema, path, depth)
    if isinstance(value, str):
        return _text(value, schema, path)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _number(value, schema, path)
    return None


def _object(value: dict[str, Any], schema: Mapping[str, Any], path: str, depth: int) -> str | None:
    properties: Mapping[str, Any] = schema.get("properties", {})
    for name in schema.get("required", []):
        if name not in value:
            return f"{path}.{name} is missing"
    # A schema that names properties knows no others, unless it says so: an argument that a tool does not take is wrong.
    others = schema.get("additionalProperties", not properties)
    for name, content in value.items():
        if name not in properties and others is False:
            return f"{path}.{name} is not known; known are {', '.join(properties) or 'none'}"
        if problem := problem_of(content, properties.get(name, others), f"{path}.{name}", depth + 1):
            return problem
    return None


def _array(value: list[Any], schema: Mapping[str, Any], path: str, depth: int) -> str | None:
    least, most = schema.get("minItems", 0), schema.get("maxItems", len(value))
    if not least <= len(value) <= most:
        return f"{path} has {len(value)} items, not {least} to {most}"
    if schema.get("uniqueItems") and any(same(a, b) for at, a in enumerate(value) for b in value[:at]):
        return f"{path} has an item twice"
    first = schema.get("prefixItems") or (schema["items"] if isinstance(schema.get("items"), list) else [])
    rest = True if isinstance(schema.get("items"), list) else schema.get("items", True)
    for index, item in enumerate(value):
        one = first[index] if index < len(first) else rest
        if problem := problem_of(item, one, f"{path}[{index}]", depth + 1):
            return problem
    return None


def _text(value: str, schema: Mapping[str, Any], path: str) -> str | None:
    if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
        return f"{path} has {len(value)} characters"
    pattern = schema.get("pattern")
    if pattern is not None and not re.search(pattern, value):
        return f"{path} does not match {pattern!r}"
    return None


def _number(value: float, schema: Mapping[str, Any], path: str) -> str | None:
    for key, holds in (("minimum", operator.ge), ("maximum", operator.le), ("exclusiveMinimum", operator.gt),
                       ("exclusiveMaximum", operator.lt)):
        limit = schema.get(key)
        if limit is not None and not isinstance(limit, bool) and not holds(value, limit):
            return f"{path} breaks {key} {limit!r}"
    return None
