"""Checks a value against the part of JSON Schema that tools use; says where and why it does not fit."""

from __future__ import annotations

from typing import Any

_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool}


def problem_of(value: Any, schema: dict[str, Any], path: str = "$") -> str | None:
    """None if `value` fits; else one sentence with a JSON path."""
    kind = schema.get("type")
    if kind is not None and (not isinstance(value, _TYPES[kind]) or isinstance(value, bool) != (kind == "boolean")):
        return f"{path} must be {kind}, not {type(value).__name__}"
    if isinstance(value, dict):
        return _object_problem(value, schema, path)
    if isinstance(value, list):
        return _array_problem(value, schema, path)
    return None


def _object_problem(value: dict[str, Any], schema: dict[str, Any], path: str) -> str | None:
    properties: dict[str, Any] = schema.get("properties", {})
    for name in schema.get("required", []):
        if name not in value:
            return f"{path}.{name} is missing"
    for name, content in value.items():
        if name not in properties:
            if schema.get("additionalProperties", True):
                continue
            return f"{path}.{name} is not known; known are {', '.join(properties) or 'none'}"
        if (problem := problem_of(content, properties[name], f"{path}.{name}")) is not None:
            return problem
    return None


def _array_problem(value: list[Any], schema: dict[str, Any], path: str) -> str | None:
    if len(value) > schema.get("maxItems", len(value)):
        return f"{path} has {len(value)} items, at most {schema['maxItems']} are allowed"
    for index, item in enumerate(value):
        if (problem := problem_of(item, schema.get("items", {}), f"{path}[{index}]")) is not None:
            return problem
    return None
