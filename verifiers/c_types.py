"""Signatures of C functions as data: which types cross, and in what form.

Numbers cross as numbers, `char*` as text, arrays (`int[]`, ...) as lists. A function that returns `void` answers with
its arrays as it left them: one alone as itself, several as a list.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

NUMBERS = ("char", "bool", "short", "int", "long", "long long", "unsigned char", "unsigned short", "unsigned",
           "unsigned long", "unsigned long long", "size_t", "float", "double")
ARRAYS = tuple(f"{name}[]" for name in NUMBERS)
TEXT = "char*"


class Signature(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    returns: str
    args: tuple[str, ...] = ()


def fault_of(signature: Signature, calls: Sequence[Sequence[Any]]) -> str | None:
    """Why these calls cannot be made; None if they can."""
    unknown = [name for name in signature.args if name not in (*NUMBERS, *ARRAYS, TEXT)]
    if unknown:
        return f"no argument can be a {unknown[0]!r}"
    if signature.returns not in (*NUMBERS, TEXT, "void"):
        return f"{signature.returns!r} cannot be returned"
    if signature.returns == "void" and not any(name in ARRAYS for name in signature.args):
        return "a function that returns void needs an array to answer in"
    if any(len(arguments) != len(signature.args) for arguments in calls):
        return f"a test has not {len(signature.args)} arguments"
    return None
