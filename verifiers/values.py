"""How values cross a process boundary: tagged JSON, never pickle. Runs on both sides: standard library alone, and none
of its modules that take long to import (`json`, `typing`): inside a sandbox that is a third of a verdict.

None, bool, str, list and int/float stand for themselves (JSON tells 1 from 1.0); the rest is an object with one tag.
A subclass crosses as its base value: its methods, `__eq__` above all, stay behind. What has no form here does not
cross (Unencodable). Two-way: `decode(encode(value))` is `value`, with the same types.
"""

from __future__ import annotations

import binascii
import math

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

DEPTH_LIMIT = 100
NODE_LIMIT = 200_000
HASHED_LIMIT = 10_000
"""Entries of sets and dicts in one value: keys chosen to collide cost the square of their number."""
PLAIN_INT = 2**53


class Unencodable(ValueError):
    """A value that has no encoded form, or an encoded form that stands for no value."""


class _Budget:
    def __init__(self) -> None:
        self.nodes = self.hashed = 0

    def spend(self, depth: int) -> None:
        self.nodes += 1
        if depth > DEPTH_LIMIT or self.nodes > NODE_LIMIT:
            raise Unencodable("too deep or too large")

    def spend_hashed(self, entries: int) -> None:
        self.hashed += entries
        if self.hashed > HASHED_LIMIT:
            raise Unencodable("too many entries in sets and dicts")


def encode(value: Any) -> Any:
    """The JSON data that stands for `value`."""
    return _encode(value, 0, _Budget())


def _encode(value: Any, depth: int, budget: _Budget) -> Any:
    budget.spend(depth)
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        whole = int.__int__(value)
        return whole if -PLAIN_INT <= whole <= PLAIN_INT else {"int": hex(whole)}
    if isinstance(value, float):
        real = float.__float__(value)
        return real if math.isfinite(real) else {"float": repr(real)}
    if isinstance(value, complex):
        return {"complex": [repr(value.real), repr(value.imag)]}
    if isinstance(value, bytes | bytearray):
        name = "bytes" if isinstance(value, bytes) else "bytearray"
        return {name: binascii.b2a_base64(value, newline=False).decode("ascii")}
    return _encode_container(value, depth + 1, budget)


def _encode_container(value: Any, depth: int, budget: _Budget) -> Any:
    if isinstance(value, list):
        return [_encode(item, depth, budget) for item in list.__iter__(value)]
    if isinstance(value, tuple):
        return {"tuple": [_encode(item, depth, budget) for item in tuple.__iter__(value)]}
    if isinstance(value, set | frozenset | dict):
        budget.spend_hashed(len(value))
    if isinstance(value, set | frozenset):
        items = [_encode(item, depth, budget) for item in set().union(value)]
        return {"set" if isinstance(value, set) else "frozenset": sorted(items, key=repr)}
    if isinstance(value, dict):
        return {"dict": [[_encode(key, depth, budget), _encode(item, depth, budget)]
                         for key, item in dict.items(value)]}
    raise Unencodable(f"a {type(value).__name__} has no encoded form")


def _writer(sort_keys: bool) -> Callable[[Any], str]:
    """Of JSON in ASCII without NaN: what `json.dumps` stands on."""
    try:
        from _json import encode_basestring_ascii, make_encoder

        write = make_encoder(None, _refuse, encode_basestring_ascii, None, ":", ",", sort_keys, False, False)
        return lambda data: "".join(write(data, 0))
    except (ImportError, TypeError):  # Another Python than CPython, or one whose encoder is made in another way.
        from json import dumps

        return lambda data: dumps(data, sort_keys=sort_keys, separators=(",", ":"), allow_nan=False)


def _refuse(value: Any) -> Any:
    raise TypeError(f"a {type(value).__name__} is no plain data")


text_of = _writer(sort_keys=False)
canonical = _writer(sort_keys=True)
"""One text for one encoded value."""


def decode(data: Any) -> Any:
    """The value that encoded data stands for. Raises Unencodable for anything else; runs no code of the value."""
    try:
        return _decode(data, 0, _Budget())
    except (ValueError, TypeError, OverflowError, LookupError) as wrong:
        raise Unencodable(str(wrong)) from None


def _decode(data: Any, depth: int, budget: _Budget) -> Any:
    budget.spend(depth)
    if data is None or isinstance(data, bool | int | float | str):
        if isinstance(data, float) and not math.isfinite(data):
            raise Unencodable("a bare number that is not finite")
        return data
    if isinstance(data, list):
        return [_decode(item, depth + 1, budget) for item in data]
    if not isinstance(data, dict) or len(data) != 1:
        raise Unencodable("not an encoded value")
    (tag, body), = data.items()
    return _decode_tagged(tag, body, depth + 1, budget)


def _decode_tagged(tag: str, body: Any, depth: int, budget: _Budget) -> Any:
    if tag in _SCALARS:
        return _SCALARS[tag](body)
    if tag in ("dict", "set", "frozenset"):
        budget.spend_hashed(len(body))
    if tag == "dict":
        pairs = [(_decode(key, depth, budget), _decode(item, depth, budget)) for key, item in body]
        made = dict(pairs)
        if len(made) != len(pairs):
            raise Unencodable("a dict with one key twice")
        return made
    if tag in _SERIES:
        if not isinstance(body, list):
            raise Unencodable(f"the body of a {tag} is not a list")
        return _SERIES[tag](_decode(item, depth, budget) for item in body)
    raise Unencodable(f"unknown tag {tag!r}")


def _real(text: Any) -> float:
    if text not in ("nan", "inf", "-inf"):
        raise Unencodable("a tagged float that is finite")
    return float(text)


def _bytes(text: Any) -> bytes:
    return binascii.a2b_base64(text, strict_mode=True)


_SCALARS: dict[str, Callable[[Any], Any]] = {
    "int": lambda body: int(body, 16), "float": _real, "bytes": _bytes,
    "bytearray": lambda body: bytearray(_bytes(body)), "complex": lambda body: complex(float(body[0]), float(body[1]))}
_SERIES: dict[str, Callable[[Any], Any]] = {"tuple": tuple, "set": set, "frozenset": frozenset}


def same(got: Any, want: Any, tolerance: float = 0.0) -> bool:
    """Strict equality of two decoded values.

    A bool equals only a bool; int and float are equal by number (within `tolerance`, if it is given); NaN equals NaN;
    all else needs the same type, so a tuple is no list; order counts in lists and tuples, not in sets and dicts.
    """
    if isinstance(got, bool) or isinstance(want, bool):
        return got is want
    if isinstance(got, int | float) and isinstance(want, int | float):
        return _same_number(got, want, tolerance)
    if type(got) is not type(want):
        return False
    if isinstance(got, list | tuple):
        return len(got) == len(want) and all(same(a, b, tolerance) for a, b in zip(got, want, strict=True))
    if isinstance(got, dict):
        wanted = {_key(key): value for key, value in want.items()}
        return len(got) == len(wanted) and all(
            _key(key) in wanted and same(value, wanted[_key(key)], tolerance) for key, value in got.items())
    if isinstance(got, set | frozenset):
        return {_key(item) for item in got} == {_key(item) for item in want}
    return bool(got == want)


def _same_number(got: float, want: float, tolerance: float) -> bool:
    if got != got or want != want:
        return got != got and want != want
    if got == want:
        return True
    try:
        return tolerance > 0 and abs(got - want) <= tolerance
    except OverflowError:
        return False


def _key(value: Any) -> tuple[Any, ...]:
    """A hashable stand-in under the same rules of equality."""
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, int | float):
        return ("nan",) if value != value else ("number", value)
    if isinstance(value, tuple):
        return ("tuple", *(_key(item) for item in value))
    if isinstance(value, frozenset):
        return ("frozenset", frozenset(_key(item) for item in value))
    return (type(value).__name__, value)
