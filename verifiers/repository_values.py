"""How a value that a test found crosses from where the submission's code runs. Runs on both sides."""

from __future__ import annotations

import collections
import hashlib
from typing import Any

from verifiers import values

WHOLE = 4096
"""Of a value's text: longer ones cross as a digest, where that is enough."""
_LARGE = 64 * WHOLE
_PLAIN: tuple[type, ...] = (str, int, float, complex, bytes, bytearray, list, tuple, dict, set, frozenset)
_AS_THEIR_BASE: tuple[type, ...] = (collections.OrderedDict, collections.defaultdict)


def form_of(value: Any, kind: str) -> dict[str, Any]:
    """`value` in plain form, its `digest`, or the name of the type of an `object` that has neither."""
    try:
        if _is_plain(value, 0):
            encoded = values.encode(value)
            text = values.canonical(encoded)
            if len(text) <= WHOLE or (kind != "eq" and len(text) <= _LARGE):
                return {"value": encoded}
            if kind == "eq":
                return {"digest": digest_of(encoded)}
    except (ValueError, TypeError, RecursionError):
        pass
    return {"object": type(value).__name__[:100]}


def _is_plain(value: Any, depth: int) -> bool:
    """Whether a comparison runs no code but Python's own, in it and all that it holds."""
    kind: Any = type(value)
    if value is None or kind is bool:
        return True
    base = next((one for one in _PLAIN if isinstance(value, one)), None)
    if base is None or depth > values.DEPTH_LIMIT:
        return False
    if kind is not base and kind not in _AS_THEIR_BASE and kind.__eq__ is not base.__eq__:  # type: ignore[comparison-overlap]
        return False
    if base is dict:
        return all(_is_plain(key, depth + 1) and _is_plain(one, depth + 1) for key, one in dict.items(value))
    if base in (list, tuple, set, frozenset):
        return all(_is_plain(one, depth + 1) for one in base.__iter__(value))
    return True


def digest_of(encoded: Any) -> str:
    """The same for values that are equal in Python, whatever the types of their numbers."""
    return hashlib.sha256(values.canonical(_leveled(encoded)).encode()).hexdigest()


def _leveled(data: Any) -> Any:
    """Encoded data with one form for equal numbers, and without the order of dicts and sets."""
    if isinstance(data, bool):
        return int(data)
    if isinstance(data, float) and data.is_integer():
        return values.encode(int(data))
    if isinstance(data, list):
        return [_leveled(one) for one in data]
    if not isinstance(data, dict):
        return data
    (tag, body), = data.items()
    if tag in ("dict", "set", "frozenset"):
        return {tag.replace("frozen", ""): sorted(map(_leveled, body), key=values.canonical)}
    return {tag: _leveled(body) if tag == "tuple" else body}
