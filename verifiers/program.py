"""Bundles modules of this package into one program for `python3 -c`, so that any sandbox can run it without mounts.

The modules must use the standard library and each other alone. Bytecode is not written, the site and the user's
packages are not loaded, the working directory is not on the path, and string hashing is fixed: the same input gives
the same output. The program holds the modules compiled, for a Python like ours, and their source for any other.
"""

from __future__ import annotations

import binascii
import functools
import importlib.util
import marshal
import zlib
from typing import Any, NamedTuple

from verifiers.digest import source_of

FLAGS = ("-S", "-s", "-P", "-B")
ENVIRONMENT = {"PYTHONHASHSEED": "0", "PYTHONIOENCODING": "utf-8"}

_ANY_PYTHON = """
    if getattr(sys.modules.get("_frozen_importlib_external"), "MAGIC_NUMBER", None) == magic:
        parts = marshal.loads(compiled)
    else:
        import zlib
        parts = eval(zlib.decompress(sources))
    for name, code in parts:
        module = type(sys)(name)
        sys.modules[name] = module
        exec(code, module.__dict__)
    return module.main
"""
_LOADER = """
import marshal, sys
from binascii import a2b_base64
def load(magic, compiled, sources):{body}
load({magic!r}, a2b_base64({compiled!r}), a2b_base64({sources!r}))()
"""
_CALLED = f"""
import marshal, sys
def load(magic, compiled, sources):{_ANY_PYTHON}
bundle, values = marshal.loads(sys.stdin.buffer.read())
load(*bundle)(**values)
"""


class Bundle(NamedTuple):
    magic: bytes
    """Of the bytecode."""
    compiled: bytes
    sources: bytes


@functools.cache
def bundle(*modules: str) -> Bundle:
    sources = [(package, "") for package in sorted({name.rpartition(".")[0] for name in modules})]
    sources += [(name, source_of(name).decode()) for name in modules]
    compiled = [(name, compile(source, name, "exec", dont_inherit=True, optimize=0)) for name, source in sources]
    return Bundle(importlib.util.MAGIC_NUMBER, marshal.dumps(compiled), zlib.compress(repr(sources).encode()))


@functools.cache
def command(*modules: str) -> list[str]:
    """The argv that defines `modules` in this order and calls `main()` of the last, inside a sandbox."""
    magic, compiled, sources = bundle(*modules)
    return ["python3", *FLAGS, "-c", _LOADER.format(
        body=_ANY_PYTHON, magic=magic, compiled=_text(compiled), sources=_text(sources))]


def _text(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode()


def call(*modules: str, **values: Any) -> tuple[list[str], bytes]:
    """The argv and the standard input that call `main(**values)` of the last of `modules` with plain data. Quicker
    than `command`, for neither a shell nor a parser reads the modules."""
    return ["python3", *FLAGS, "-c", _CALLED], marshal.dumps((tuple(bundle(*modules)), values), 2)
