"""Runs inside a sandbox: a Python that executes one piece of code after the other in one namespace.

Descriptor 0 is the stream to the owner: a length (4 bytes, little-endian) and the code; the answer is a line with the
number of the call, and 0 or 1.
Output goes to the pipes 3 and 4. Like the interactive interpreter it shows the value of a last expression.
Where descriptor 0 goes one way only (`framed`), two messages name the marks between which answers stand in pipe 3, and
the first of which ends what was written to pipe 4.
"""

import ast
import contextlib
import itertools
import os
import struct
import sys
import traceback

NAME = "<session>"


def take(link: int, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = os.read(link, count - len(data))
        if not part:
            os._exit(0)
        data += part
    return data


def message(link: int) -> bytes:
    return take(link, struct.unpack("<I", take(link, 4))[0])


def execute(text: str, names: dict[str, object]) -> int:
    try:
        tree = ast.parse(text, NAME)
    except (SyntaxError, ValueError, MemoryError, RecursionError) as wrong:
        traceback.print_exception(type(wrong), wrong, None)
        return 1
    try:
        last = tree.body[-1] if tree.body else None
        if isinstance(last, ast.Expr):
            tree.body.pop()
        exec(compile(tree, NAME, "exec"), names)
        if isinstance(last, ast.Expr):
            sys.displayhook(eval(compile(ast.Expression(last.value), NAME, "eval"), names))
        return 0
    except SystemExit:
        raise
    except BaseException as wrong:
        frames = wrong.__traceback__.tb_next if wrong.__traceback__ else None
        traceback.print_exception(type(wrong), wrong, frames)
        return 1


def main() -> None:
    link = os.dup(0)
    ends = [(link, b"", b"\n")]
    if sys.argv[1:] == ["framed"]:
        del sys.argv[1:]
        begin, end = message(link), message(link)
        ends = [(os.dup(4), begin, b""), (os.dup(3), begin, b"\n" + end)]
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    os.dup2(os.open("/proc/self/fd/3", os.O_WRONLY), 1)
    os.dup2(os.open("/proc/self/fd/4", os.O_WRONLY), 2)
    os.closerange(3, link)
    sys.path.insert(0, "")
    module = type(sys)("__main__")
    sys.modules["__main__"] = module
    for number in itertools.count(1):
        code = execute(message(link).decode("utf-8", "surrogateescape"), module.__dict__)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        answer = b"%d %d" % (number, code)
        for descriptor, before, after in ends:
            os.write(descriptor, before + (answer if after else b"") + after)


main()
