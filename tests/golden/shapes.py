"""The fields of payloads as data: name, type and default in wire order, and what in a newer shape breaks an older."""

from __future__ import annotations

import types
from collections.abc import Iterable
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec

from schemas.events import Int64, Payload

Shape = list[dict[str, Any]]
Shapes = dict[str, Shape]


def shapes_of(payloads: Iterable[type[Payload]]) -> Shapes:
    """By `name.vN`, and by class name for the structures inside."""
    found: Shapes = {}
    for payload in payloads:
        found[f"{payload.NAME}.v{payload.VERSION}"] = _shape(payload, found)
    return found


def _shape(struct: type[msgspec.Struct], found: Shapes) -> Shape:
    hints = get_type_hints(struct, include_extras=True)
    return [{"name": field.encode_name, "type": _type(hints[field.name], found)} | _default(field)
            for field in msgspec.structs.fields(struct)]


def _default(field: Any) -> dict[str, Any]:
    if field.required:
        return {}
    value = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    return {"default": msgspec.to_builtins(value)}


def _type(hint: Any, found: Shapes) -> str:
    if hint == Int64:
        return "int64"
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        raise TypeError(f"{hint} has no name here yet")
    if origin in (Union, types.UnionType):
        return " | ".join(_type(one, found) for one in inner)
    if origin is not None:
        return f"{origin.__name__}[{', '.join(_type(one, found) for one in inner)}]"
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        found[hint.__name__] = _shape(hint, found)
    return "null" if hint is type(None) else str(hint.__name__)


def breaks(old: Shapes, new: Shapes) -> list[str]:
    """Why bytes written by `old` might not be read alike by `new`; [] if types and fields were only added."""
    return [f"{name}: {wrong}" for name, shape in old.items() for wrong in _changes(shape, new.get(name))]


def _changes(old: Shape, new: Shape | None) -> list[str]:
    if new is None:
        return ["removed"]
    now = {field["name"]: field for field in new}
    found = []
    for field in old:
        name = field["name"]
        if name not in now:
            found.append(f"field `{name}` was removed or renamed")
        elif now[name] != field:
            found.append(f"field `{name}` changed from {_told(field)} to {_told(now[name])}")
    names = [field["name"] for field in old]
    if not found and [field["name"] for field in new][:len(names)] != names:
        found.append("fields were reordered, or one was added before the end")
    found += [f"field `{name}` was added without a default" for name, field in now.items()
              if name not in names and "default" not in field]
    return found


def _told(field: dict[str, Any]) -> str:
    return f"{field['type']}, default {field['default']!r}" if "default" in field else f"{field['type']}, required"
