"""Values that a computer algebra system rounds away or cannot bring into one form: looked at by their digits.

Runs beside `verifiers.math.compare`, in its process. Everything here is bounded in digits, not in time.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

_DIGITS = 200
_CLOSE = 120
"""Decimal digits in which two exact numbers must agree, relative to the larger."""
_POINTS = ("0.7320508075688", "-0.6180339887499", "2.2360679774998", "-3.3166247903554", "5.3851648071345",
           "-7.2801098892805")
_LETTERS, _SIZE, _POWER = 3, 60, 100


def differ(want: Any, got: Any) -> bool:
    """Whether two numbers, or those at the same place of two tuples, intervals, matrices or sets, are surely others:
    1/2004! is not 1/2006!, however small both are."""
    if _is_number(want) and _is_number(got):
        return not _close(want, got)
    if any(ours.is_real and theirs.is_real and not _close(ours, theirs)
           for ours, theirs in _values(want, got, _POINTS[::2])):
        return True
    ours, theirs = _parts(want), _parts(got)
    if ours is None or theirs is None or len(ours) != len(theirs):
        return False
    if _is_set(want) and _is_set(got):
        return not any(all(not differ(one, other) for one, other in zip(ours, turned, strict=True))
                       for turned in itertools.permutations(theirs)) if len(ours) <= 5 else False
    return any(differ(one, other) for one, other in zip(ours, theirs, strict=True))


def same_complex(want: Any, got: Any) -> bool:
    """Whether both are the same complex number where the letter i is the imaginary unit."""
    import sympy

    if not all(isinstance(one, sympy.Expr) for one in (want, got)):
        return False
    unit = {letter: sympy.I for one in (want, got) for letter in one.free_symbols if letter.name == "i"}
    ours, theirs = want.subs(unit), got.subs(unit)
    return bool(unit) and _is_number(ours) and _is_number(theirs) and _close(ours, theirs)


def same_over_reals(want: Any, got: Any) -> bool:
    """Whether two expressions in the same letters have the same value, or both none, at some real points: so
    sqrt(1/n) is 1/sqrt(n), and sqrt(x^2) is not x."""
    real = 0
    for ours, theirs in _values(want, got, _POINTS):
        if ours.is_real != theirs.is_real or (ours.is_real and not _close(ours, theirs)):
            return False
        real += bool(ours.is_real)
    return real >= 2


def _values(want: Any, got: Any, points: Sequence[str]) -> Iterator[tuple[Any, Any]]:
    """Both at the same places; none where they have other letters, or more in them than is quickly worked out."""
    import sympy

    letters = sorted(getattr(want, "free_symbols", ()), key=str)
    if not 0 < len(letters) <= _LETTERS or set(letters) != getattr(got, "free_symbols", set()) or not (
            _is_small(want) and _is_small(got)):
        return
    for turn in range(len(points)):
        at = {letter: sympy.Float(points[(turn + 2 * place) % len(points)], _DIGITS + 10)
              for place, letter in enumerate(letters)}
        yield sympy.N(want.subs(at), _DIGITS), sympy.N(got.subs(at), _DIGITS)


def _is_small(value: Any) -> bool:
    import sympy
    from sympy.functions.elementary.hyperbolic import HyperbolicFunction
    from sympy.functions.elementary.trigonometric import InverseTrigonometricFunction, TrigonometricFunction

    known = (sympy.Add, sympy.Mul, sympy.Pow, sympy.Symbol, sympy.Number, sympy.NumberSymbol, sympy.Abs, sympy.log,
             sympy.exp, TrigonometricFunction, HyperbolicFunction, InverseTrigonometricFunction)
    nodes = list(itertools.islice(sympy.preorder_traversal(value), _SIZE + 1))
    return len(nodes) <= _SIZE and all(
        isinstance(node, known) and not (node.is_Integer and abs(node) > _POWER) for node in nodes)


def _is_number(value: Any) -> bool:
    import sympy

    return isinstance(value, sympy.Expr) and bool(value.is_number)


def _close(one: Any, other: Any) -> bool:
    """To six digits where a decimal is in one of them. What has no value agrees with everything: it is not for us."""
    import sympy

    digits = 6 if _has_decimal(one) or _has_decimal(other) else _CLOSE
    ours, theirs = sympy.N(one, _DIGITS), sympy.N(other, _DIGITS)
    if not (ours.is_finite and theirs.is_finite):
        return True
    size = max(abs(ours), abs(theirs))
    return bool(abs(ours - theirs) <= size * sympy.Float(10) ** -digits)


def _has_decimal(value: Any) -> bool:
    import sympy

    return any(number._prec < 400 for number in value.atoms(sympy.Float))


def _is_set(value: Any) -> bool:
    import sympy

    return isinstance(value, sympy.FiniteSet)


def _parts(value: Any) -> list[Any] | None:
    import sympy

    if isinstance(value, sympy.Interval):
        return [value.start, value.end]
    if isinstance(value, sympy.Tuple | sympy.FiniteSet | list | tuple):
        return list(value.args) if isinstance(value, sympy.Basic) else list(value)
    if isinstance(value, sympy.MatrixBase):
        return list(value)
    return None
