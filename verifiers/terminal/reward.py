"""Reward files of a test script: `reward.json` first (a number, or numbers by name), else `reward.txt` (one number).

Whatever is not exactly that is no reward at all, never 0: Unreadable says what was found. A `reward.json` that is
there and wrong is not passed over for a `reward.txt`.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping
from typing import Any

LIMIT_BYTES = 64 << 10
NAMES_LIMIT = 256
REWARD = "reward"
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")


class Unreadable(Exception):
    """Its text says what is wrong with the reward file."""


def reward_of(found: Mapping[str, Mapping[str, Any]]) -> tuple[float, dict[str, float]]:
    """Reward and named numbers, of what `verifiers.terminal.inside` found at the two places."""
    for name, parse in (("reward.json", _json), ("reward.txt", _text)):
        if name in found:
            numbers = parse(name, _data(name, found[name]))
            return _reward(name, numbers), numbers
    raise Unreadable("the tests wrote no reward: neither /logs/verifier/reward.json nor reward.txt is there")


def _data(name: str, entry: Mapping[str, Any]) -> str:
    if "problem" in entry:
        raise Unreadable(f"{name} {entry['problem']}")
    try:
        text = base64.b64decode(entry["data"]).decode()
    except UnicodeDecodeError:
        raise Unreadable(f"{name} is not UTF-8") from None
    if not text.strip():
        raise Unreadable(f"{name} is empty")
    return text


def _text(name: str, text: str) -> dict[str, float]:
    if not _NUMBER.fullmatch(text.strip()):
        raise Unreadable(f"{name} does not hold one finite number: {text.strip()[:80]!r}")
    return {REWARD: _finite(name, REWARD, float(text))}


def _json(name: str, text: str) -> dict[str, float]:
    try:
        value = json.loads(text, object_pairs_hook=_object)
    except (ValueError, RecursionError) as wrong:
        raise Unreadable(f"{name} is not JSON ({wrong})") from None
    if not isinstance(value, dict):
        value = {REWARD: value}
    if not value or len(value) > NAMES_LIMIT:
        raise Unreadable(f"{name} holds {len(value)} numbers, not 1 to {NAMES_LIMIT}")
    return {key: _finite(name, key, number) for key, number in value.items()}


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands there twice")
    return found


def _finite(name: str, key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unreadable(f"{name}: {key!r} is no number: {str(value)[:80]!r}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise Unreadable(f"{name}: {key!r} is not finite")
    return number


def _reward(name: str, numbers: Mapping[str, float]) -> float:
    """`reward` where it is named, else the mean of all."""
    counted = {REWARD: numbers[REWARD]} if REWARD in numbers else numbers
    for key, number in counted.items():
        if not 0.0 <= number <= 1.0:
            raise Unreadable(f"{name}: {key!r} is outside of [0, 1]: {number!r}")
    return math.fsum(counted.values()) / len(counted)
