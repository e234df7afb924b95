"""Schemas that wanted calls fit: what a task wants outranks what its functions' documentation says.

Public sets hold accepted calls that their own schemas forbid (a text for a documented integer, a value missing in an
enumeration, a required argument that is not given). A policy that makes such a call is right.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from verifiers.tools_match import ABSENT
from verifiers.tools_schema import problem_of


def fitted(schemas: Mapping[str, Any], calls: Iterable[Mapping[str, Any]],
           alternatives: bool) -> tuple[dict[str, Any], list[str]]:
    """The schemas by name, and where wanted calls overruled them."""
    found, overruled = dict(schemas), []
    for call in calls:
        name = call["name"]
        if name in found and isinstance(found[name], Mapping):
            found[name], where = _fitted(found[name], _values(call["arguments"], alternatives))
            overruled += [f"{name}.{argument}" for argument in where]
    return found, sorted(set(overruled))


def _values(arguments: Mapping[str, Any], alternatives: bool) -> dict[str, list[Any]]:
    """For each argument the values that it may have."""
    if not alternatives:
        return {name: [value] for name, value in arguments.items()}
    return {name: [plain(option) for option in options if option != ABSENT] for name, options in arguments.items()}


def plain(option: Any) -> Any:
    """One value that an alternative accepts, at any depth."""
    if isinstance(option, Mapping) and all(isinstance(options, list) for options in option.values()):
        chosen = {name: [one for one in options if one != ABSENT] for name, options in option.items()}
        return {name: plain(options[0]) for name, options in chosen.items() if options}
    return [plain(item) for item in option] if isinstance(option, list) else option


def _fitted(schema: Mapping[str, Any], values: Mapping[str, Sequence[Any]]) -> tuple[dict[str, Any], list[str]]:
    properties: dict[str, Any] = dict(schema.get("properties", {}))
    required = [name for name in schema.get("required", []) if values.get(name)]
    dropped = [name for name in schema.get("required", []) if name not in required]
    wrong = [name for name, options in values.items() if _forbids(schema, properties, name, options)]
    if not wrong and not dropped:
        return dict(schema), []
    return {**schema, "properties": {**properties, **dict.fromkeys(wrong, True)}, "required": required}, wrong + dropped


def _forbids(schema: Mapping[str, Any], properties: Mapping[str, Any], name: str, options: Sequence[Any]) -> bool:
    if name in properties:
        return any(problem_of(option, properties[name]) for option in options)
    return schema.get("additionalProperties", not properties) is False
