"""Evidence: why a score is what it is, as a JSON artifact with deterministic bytes.

It holds no times, no durations and no ids of this run, so the same verdict on the same submission is the same
artifact, today and in a replay. A failed verdict has evidence too.
"""

from __future__ import annotations

import itertools
import json
import math
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

MEDIA_TYPE = "application/vnd.headrace.evidence+json"
TEXT_LIMIT = 2000
ITEMS_LIMIT = 2000
DEPTH_LIMIT = 12
CHARACTERS_LIMIT = 4 << 20
"""Of all texts together, each value counted as one more; what comes after them is left out, and says so."""


def encode(document: Mapping[str, Any]) -> bytes:
    """Canonical JSON: sorted keys, ASCII, no NaN; long texts and lists are cut and say so."""
    return json.dumps(plain(document), sort_keys=True, ensure_ascii=True, allow_nan=False, indent=1).encode()


def plain(value: Any) -> Any:
    """`value` as JSON data. What has no JSON form becomes its repr: evidence must never fail for its content."""
    return _Plain().of(value, 0)


class _Plain:
    def __init__(self) -> None:
        self.left = CHARACTERS_LIMIT

    def of(self, value: Any, depth: int) -> Any:
        self.left -= 1
        if depth > DEPTH_LIMIT or self.left < 0:
            return "..."
        if value is None or isinstance(value, bool | int):
            return value if value is None or abs(value) < 2**63 else hex(value)
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else repr(float(value))
        if isinstance(value, str):
            return self.text(str(value))
        if isinstance(value, Mapping):
            some = itertools.islice(value.items(), ITEMS_LIMIT)
            shown = {self.text(shown_as(key, str)): self.of(item, depth + 1) for key, item in some}
            return shown if len(value) <= ITEMS_LIMIT else {**shown, "...": f"{len(value) - ITEMS_LIMIT} more"}
        if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
            items = [self.of(item, depth + 1) for item in value[:ITEMS_LIMIT]]
            return items if len(value) <= ITEMS_LIMIT else [*items, f"... {len(value) - ITEMS_LIMIT} more"]
        return self.text(shown_as(value, repr))

    def text(self, text: str) -> str:
        shown = clip(text)
        self.left -= len(shown)
        return shown


def shown_as(value: object, how: Callable[[object], str]) -> str:
    try:
        return how(value)
    except Exception as wrong:
        return f"<a {type(value).__name__} that cannot be shown: {type(wrong).__name__}>"


def clip(text: str, limit: int = TEXT_LIMIT) -> str:
    """Head and tail of a long text, with the number of characters left out."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}... {len(text) - 2 * half} characters ...{text[-half:]}"


def trace_of(wrong: BaseException) -> dict[str, Any]:
    """An exception for the evidence: frames by file name, not by path, so machines agree."""
    frames = traceback.extract_tb(wrong.__traceback__)
    return {"error": type(wrong).__name__, "message": clip(str(wrong)),
            "traceback": [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames[-20:]]}
