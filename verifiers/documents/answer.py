"""The answer as one JSON object, read strictly: nothing beside it, no key twice, no NaN; numbers become Decimal."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from verifiers.documents.numbers import DIGITS_LIMIT

ANSWER_LIMIT = 64 << 10
"""Characters; the verifier looks before it reads."""
DEPTH_LIMIT = 32


class BadAnswer(ValueError):
    """The answer as a whole is not one JSON object."""


def parse_answer(text: str | None) -> dict[str, Any]:
    """The answer's JSON object; a list that holds one object alone stands for it."""
    answer = parse_json(text)
    if isinstance(answer, list) and len(answer) == 1:
        answer = answer[0]
    if not isinstance(answer, dict):
        raise BadAnswer("not a JSON object")
    return answer


def parse_json(text: str | None) -> Any:
    """Any JSON value under the same rules. Raises BadAnswer."""
    if text is None or not text.strip():
        raise BadAnswer("nothing was answered")
    _check_depth(text)
    try:
        return json.loads(text, parse_float=_number_of, parse_int=_number_of, parse_constant=_refuse,
                          object_pairs_hook=_object)
    except BadAnswer:
        raise
    except (ValueError, RecursionError) as wrong:
        raise BadAnswer(f"not JSON ({wrong})") from None


def _check_depth(text: str) -> None:
    """Before a parser recurses: brackets outside of strings."""
    depth, quoted, escaped = 0, False, False
    for mark in text:
        if quoted:
            quoted, escaped = escaped or mark != '"', mark == "\\" and not escaped
        elif mark == '"':
            quoted = True
        elif mark in "[{":
            depth += 1
            if depth > DEPTH_LIMIT:
                raise BadAnswer(f"nested deeper than {DEPTH_LIMIT}")
        elif mark in "]}":
            depth -= 1


def _number_of(text: str) -> Decimal:
    value = Decimal(text) if len(text) <= DIGITS_LIMIT else Decimal("nan")
    if not value.is_finite() or abs(value.adjusted()) > DIGITS_LIMIT:
        raise BadAnswer("a number out of all proportion")
    return value


def _refuse(text: str) -> Any:
    raise BadAnswer(f"{text} is no JSON value")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise BadAnswer("a key stands there twice")
    return made
