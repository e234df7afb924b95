"""Runs inside the candidate's sandbox: loads its shared library, calls its function, sends encoded values back.

As `verifiers.candidate_runner` does for Python, with the same lines and the same trust: it knows the arguments alone.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable
from typing import Any

from verifiers import candidate_runner

_NUMBERS: dict[str, Any] = {
    "char": ctypes.c_byte, "bool": ctypes.c_bool, "short": ctypes.c_short, "int": ctypes.c_int, "long": ctypes.c_long,
    "long long": ctypes.c_longlong, "unsigned char": ctypes.c_ubyte, "unsigned short": ctypes.c_ushort,
    "unsigned": ctypes.c_uint, "unsigned long": ctypes.c_ulong, "unsigned long long": ctypes.c_ulonglong,
    "size_t": ctypes.c_size_t, "float": ctypes.c_float, "double": ctypes.c_double}


def main(path: str, entry: str, args: list[str], returns: str, calls: list[dict[str, Any]], deadline_s: float,
         budget_s: float) -> None:
    channel = os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    candidate_runner.send(channel, {"compiles": True, "findings": []})
    function, problem = _load(path, entry, args, returns, deadline_s)
    candidate_runner.send(channel, {"load": problem})
    if function is not None:
        candidate_runner.answer_all(channel, function, calls, deadline_s, budget_s)


def _load(path: str, entry: str, args: list[str], returns: str, deadline_s: float
          ) -> tuple[Callable[..., Any] | None, str | None]:
    """A constructor of the library runs here; one that does not end is ended by the alarm."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, deadline_s)
    try:
        function = getattr(ctypes.CDLL(path), entry)
    except (OSError, AttributeError) as wrong:
        return None, f"defines no {entry}" if isinstance(wrong, AttributeError) else str(wrong)[-300:]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    function.restype = None if returns == "void" else ctypes.c_char_p if returns == "char*" else _NUMBERS[returns]
    return lambda *given: _call(function, args, returns, given), None


def _call(function: Any, types: list[str], returns: str, given: tuple[Any, ...]) -> Any:
    passed = [_converted(name, value) for name, value in zip(types, given, strict=True)]
    value = function(*passed)
    if returns == "void":
        arrays = [list(one)[:len(was)] for one, was, name in zip(passed, given, types, strict=True)
                  if name.endswith("[]")]
        return arrays[0] if len(arrays) == 1 else arrays
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _converted(name: str, value: Any) -> Any:
    if name == "char*":
        return ctypes.create_string_buffer(value.encode())
    if name.endswith("[]"):
        return (_NUMBERS[name[:-2]] * max(1, len(value)))(*value)
    return _NUMBERS[name](value)
