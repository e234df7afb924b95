"""Bundles modules of this package into one program for `python3 -c`, so that any sandbox can run it without mounts.

The modules must use the standard library and each other alone. Bytecode is not written, the site and the user's
packages are not loaded, the working directory is not on the path, and string hashing is fixed: the same input gives
the same output.
"""

from __future__ import annotations

import functools

from verifiers.digest import source_of

FLAGS = ("-S", "-s", "-P", "-B")
ENVIRONMENT = {"PYTHONHASHSEED": "0", "PYTHONIOENCODING": "utf-8"}

_LOADER = """
import sys, types
for name, source in {sources!r}:
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(source, name, "exec"), module.__dict__)
sys.modules[{main!r}].main()
"""


@functools.cache
def program(*modules: str) -> str:
    """Source text that defines `modules` in this order and calls `main()` of the last."""
    sources = [(package, "") for package in sorted({name.rpartition(".")[0] for name in modules})]
    sources += [(name, source_of(name).decode()) for name in modules]
    return _LOADER.format(sources=sources, main=modules[-1])


def command(*modules: str) -> list[str]:
    """The argv that runs the bundle inside a sandbox."""
    return ["python3", *FLAGS, "-c", program(*modules)]
