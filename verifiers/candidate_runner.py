"""Runs inside the candidate's sandbox: loads its file, calls its function, sends encoded values back.

It knows the arguments and nothing of what is wanted, so there is nothing here to steal: a candidate that takes this
process over can do no better than to answer. It writes lines of JSON: first what the source looks like, said before any
of it has run; then whether it loaded; then one outcome per call after the call's number. Every call runs in its own
child with a deadline. As in `verifiers.values`, no module is imported that takes long.
"""

from __future__ import annotations

import _ast as ast
import _signal as signal
import builtins
import gc
import os
import select
import sys
import time

from verifiers import values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

LINE_LIMIT = 1 << 20
SOURCE_LIMIT = 1 << 20
DIED = b'{"died":true}'
TIMEOUT = b'{"timeout":true}'
_SIGKILL = 9


def main(path: str, entry: str, calls: list[dict[str, Any]], deadline_s: float, budget_s: float) -> None:
    channel = os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    source = _source(path)
    send(channel, look_at(source))
    function, problem = _load(source, entry, deadline_s)
    send(channel, {"load": problem})
    if function is not None:
        answer_all(channel, function, calls, deadline_s, budget_s)


def answer_all(channel: int, function: Callable[..., Any], calls: list[dict[str, Any]], deadline_s: float,
               budget_s: float) -> None:
    gc.freeze()  # Children share these pages until they write to them.
    end = time.monotonic() + budget_s
    for index, call in enumerate(calls):
        left = min(deadline_s, end - time.monotonic())
        write(channel, b"%d %b\n" % (index, _in_child(function, call, left) if left > 0 else TIMEOUT))


def send(channel: int, record: dict[str, Any]) -> None:
    write(channel, values.text_of(record).encode() + b"\n")


def write(channel: int, line: bytes) -> None:
    while line:
        line = line[os.write(channel, line):]


def _source(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(SOURCE_LIMIT)


def look_at(source: bytes) -> dict[str, Any]:
    """Whether the source compiles, and what a reader would object to."""
    try:
        tree: Any = compile(source, "solution", "exec", ast.PyCF_ONLY_AST)
        compile(tree, "solution", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as wrong:
        return {"compiles": False, "error": f"{type(wrong).__name__}: {wrong}"[:300], "findings": []}
    return {"compiles": True, "findings": sorted(_findings(tree))}


def _findings(tree: ast.AST) -> list[str]:
    found = []
    for node in _nodes(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.ExceptHandler) and node.type is None:
            found.append(f"{line}: bare except")
        elif isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
            found.append(f"{line}: star import")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("eval", "exec"):
            found.append(f"{line}: {node.func.id}")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            defaults = [*node.args.defaults, *node.args.kw_defaults]
            if any(isinstance(default, ast.List | ast.Dict | ast.Set) for default in defaults):
                found.append(f"{line}: mutable default argument")
    return found


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    todo = [tree]
    while todo:
        node = todo.pop()
        yield node
        for name in node._fields:
            value = getattr(node, name, None)
            parts = value if isinstance(value, list) else [value]
            todo.extend(part for part in parts if isinstance(part, ast.AST))


def _load(source: bytes, entry: str, deadline_s: float) -> tuple[Callable[..., Any] | None, str | None]:
    """The candidate's function, or why there is none. An endless import is ended by the alarm."""
    module = type(sys)("solution")
    module.__file__ = "solution.py"
    sys.modules["solution"] = module
    sys.path.append(os.getcwd())
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, deadline_s)
    try:
        exec(compile(source, "solution.py", "exec"), module.__dict__)
        function = module.__dict__.get(entry)
    except BaseException as wrong:
        return None, _describe(wrong)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    if function is None:
        return None, f"defines no {entry}"
    return (function, None) if callable(function) else (None, f"{entry} is not a function")


def _in_child(function: Callable[..., Any], call: dict[str, Any], deadline_s: float) -> bytes:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            _answer(function, call, writer)
        finally:
            os._exit(0)
    os.close(writer)
    try:
        return _receive(reader, time.monotonic() + deadline_s)
    finally:
        os.close(reader)
        os.kill(child, _SIGKILL)
        os.waitpid(child, 0)


def _answer(function: Callable[..., Any], call: dict[str, Any], writer: int) -> None:
    try:
        args = [values.decode(item) for item in call["args"]]
        kwargs = {name: values.decode(item) for name, item in call.get("kwargs", {}).items()}
        value = function(*args, **kwargs)
    except BaseException as wrong:
        send(writer, {"raised": type(wrong).__name__, "message": _describe(wrong)})
        return
    try:
        send(writer, {"value": values.encode(value)})
    except BaseException:
        send(writer, {"unencodable": type(value).__name__})


def _receive(reader: int, end: float) -> bytes:
    """The child's one line. A child that dies, writes too much or takes too long has given no value."""
    data = b""
    while not data.endswith(b"\n"):
        left = end - time.monotonic()
        if left <= 0 or not select.select([reader], [], [], left)[0]:
            return TIMEOUT
        piece = os.read(reader, 1 << 16)
        data += piece
        if not piece:
            return DIED
        if len(data) > LINE_LIMIT:
            return b'{"unencodable":"value over 1 MiB"}'
    return data[:-1] if data.count(b"\n") == 1 else DIED


def _describe(wrong: BaseException) -> str:
    try:
        return builtins.str(f"{type(wrong).__name__}: {wrong}")[:300]
    except BaseException:
        return "an exception that cannot be described"
