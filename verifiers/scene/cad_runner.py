"""Runs inside the sandbox: executes a build123d program and writes its model as STL, unless it wrote the file itself.

It knows nothing that is worth stealing: the path of the program, the path of the file, the name of a variable.
Displays that such programs often import have a stand-in that shows nothing.
"""

from __future__ import annotations

import os
import runpy
import sys
import types
from typing import Any

_FINENESS = 1e-4
"""Largest distance between the mesh and the true surface, as a share of the model's diagonal."""
_ANGLE = 0.2
_DISPLAYS = ("ocp_vscode", "cq_viewer", "yacv_server")


def main() -> None:
    program, out, variable = sys.argv[1:4]
    for name in _DISPLAYS:
        sys.modules[name] = _Display(name)
    sys.path.insert(0, os.path.dirname(os.path.abspath(program)))
    sys.argv = [program]
    found = runpy.run_path(program, run_name="__main__")
    if os.path.exists(out):
        return
    if not out.lower().endswith(".stl"):
        raise SystemExit(f"the program wrote no {out}")
    _export(_model(found, variable), out)


class _Display(types.ModuleType):
    __all__ = ("show", "show_all", "show_object", "set_port", "set_defaults", "reset_show", "Camera")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Nothing()


class _Nothing:
    def __call__(self, *_: Any, **__: Any) -> _Nothing:
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self


def _model(found: dict[str, Any], variable: str) -> Any:
    if variable:
        if variable not in found:
            raise SystemExit(f"the program defines no {variable}")
        return getattr(found[variable], "part", found[variable])
    best, size = None, 0.0
    for value in found.values():
        shape = getattr(value, "part", value)
        volume = _volume(shape)
        if volume > size:
            best, size = shape, volume
    if best is None:
        raise SystemExit("no solid found: assign a part, a solid or a compound to a variable")
    return best


def _volume(shape: Any) -> float:
    from build123d import Shape

    if not isinstance(shape, Shape):
        return 0.0
    try:
        return float(shape.volume)
    except Exception:
        return 0.0


def _export(shape: Any, out: str) -> None:
    from build123d import export_stl

    size = shape.bounding_box().diagonal
    if not export_stl(shape, out, tolerance=_FINENESS * size, angular_tolerance=_ANGLE):
        raise SystemExit("the model could not be exported")
