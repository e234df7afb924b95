"""Two expressions compared by Math-Verify. Runs in a process of its own (verifiers.killable): what a policy wrote may
keep a computer algebra system busy for ever.
"""

from __future__ import annotations

import logging
import re
from fractions import Fraction
from typing import Any

from verifiers.math.numeric import differ, same_complex, same_over_reals

SHOWN = 500
_SYMBOLIC_DIGITS = 40


def compare(want: list[str], got: list[str], decimal: str = "") -> dict[str, Any]:
    """Whether each wanted expression has an answered one of its own. `decimal`: the answer as it was written, where it
    is a decimal. `unread` names the side that is no mathematics."""
    logging.disable(logging.WARNING)
    wanted = [_parse(text) for text in want]
    answered = [_parse(text) for text in got]
    said: dict[str, Any] = {"want": [_shown(one) for one in wanted], "got": [_shown(one) for one in answered]}
    if any(one is None for one in wanted):
        return {**said, "unread": "want", "same": False}
    if any(one is None for one in answered):
        return {**said, "unread": "got", "same": False}
    if len(wanted) != len(answered):
        return {**said, "same": False}
    left = list(answered)
    for one in wanted:
        found = next((index for index, other in enumerate(left) if _same(one, other, decimal)), None)
        if found is None:
            return {**said, "same": False}
        del left[found]
    return {**said, "same": True}


def _parse(text: str) -> Any:
    """The one expression that LaTeX stands for, or None."""
    from latex2sympy2_extended import NormalizationConfig
    from math_verify import LatexExtractionConfig, parse

    if not _balanced(text):
        return None
    config = LatexExtractionConfig(normalization_config=NormalizationConfig(
        basic_latex=True, units=False, malformed_operators=False, nits=False, boxed="none", equations=False))
    try:
        found = parse(f"${text}$", [config], fallback_mode="no_fallback", parsing_timeout=None, raise_on_error=True)
    except (MemoryError, KeyboardInterrupt):
        raise
    except Exception:
        return None
    return found[0] if found and not isinstance(found[0], str) else None


def _balanced(text: str) -> bool:
    """Braces of LaTeX close, and nothing leaves mathematics."""
    return text.replace("\\{", "").replace("\\}", "").count("{") == text.replace("\\{", "").replace(
        "\\}", "").count("}") and "$" not in text and not re.search(r"\\(?:input|include|def|boxed)", text)


def _same(want: Any, got: Any, decimal: str) -> bool:
    from math_verify import verify

    if decimal and getattr(want, "is_number", False):
        return _rounded(want, decimal)
    if _is_claim(got) and not _is_claim(want):
        got = _right_side(got)
        if got is None:
            return False
    if verify(want, got, timeout_seconds=None, raise_on_error=False, allow_set_relation_comp=True):
        return not differ(want, got)
    return same_complex(want, got) or same_over_reals(want, got)


def _is_claim(value: Any) -> bool:
    import sympy

    return isinstance(value, sympy.Eq)


def _right_side(claim: Any) -> Any:
    """What `x = 3` says of x, and what a right calculation such as `1 + 2 = 3` comes to; None for other claims."""
    if claim.lhs.is_number and claim.rhs.is_number:
        return claim.rhs if claim.lhs.args and not differ(claim.lhs, claim.rhs) else None
    return claim.rhs if claim.lhs.is_Symbol and not claim.rhs.has(claim.lhs) else None


def _rounded(want: Any, decimal: str) -> bool:
    import sympy

    from verifiers.math.exact import agrees, plain_number

    number = plain_number(decimal)
    if number is None or want.is_real is False:
        return False
    if want.is_Rational:
        return agrees(number, Fraction(int(want.p), int(want.q)))
    value = sympy.N(want, _SYMBOLIC_DIGITS)
    return bool(value.is_Float) and agrees(number, Fraction(str(value)))


def _shown(value: Any) -> str:
    if value is None:
        return "not mathematics"
    text = str(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
