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
from typing import Any

from verifiers.digest import source_of

FLAGS = ("-S", "-s", "-P", "-B")
ENVIRONMENT = {"PYTHONHASHSEED": "0", "PYTHONIOENCODING": "utf-8"}

_LOADER = """
import sys, marshal
from binascii import a2b_base64
if getattr(sys.modules.get("_frozen_importlib_external"), "MAGIC_NUMBER", None) == {magic!r}:
    parts = marshal.loads(a2b_base64({compiled!r}))
else:
    import zlib
    parts = eval(zlib.decompress(a2b_base64({sources!r})))
for name, code in parts:
    module = type(sys)(name)
    sys.modules[name] = module
    exec(code, module.__dict__)
sys.modules[{main!r}].main()
"""


@functools.cache
def program(*modules: str) -> str:
    """Source text that defines `modules` in this order and calls `main()` of the last."""
    sources = [(package, "") for package in sorted({name.rpartition(".")[0] for name in modules})]
    sources += [(name, source_of(name).decode()) for name in modules]
    compiled = [(name, compile(source, name, "exec", dont_inherit=True, optimize=0)) for name, source in sources]
    return _LOADER.format(magic=importlib.util.MAGIC_NUMBER, compiled=_packed(marshal.dumps(compiled)),
                          sources=_packed(zlib.compress(repr(sources).encode())), main=modules[-1])


def _packed(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode()


def request(**values: Any) -> bytes:
    """Plain data for a program's standard input; `marshal.loads` there reads it with nothing to import."""
    return marshal.dumps(values, 2)


def command(*modules: str) -> list[str]:
    """The argv that runs the bundle inside a sandbox."""
    return ["python3", *FLAGS, "-c", program(*modules)]
