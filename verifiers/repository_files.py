"""What lies beside the workspace of a repository under test: the task's tests, and the pytest that runs them."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path

from schemas.errors import UnavailableError, VerifierError

TESTS, LIBRARIES = "/opt/headrace-tests", "/opt/headrace-libraries"
_PYTEST = ("pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "pygments")


def lay_out(folder: Path, files: Mapping[str, bytes]) -> Path:
    for name, data in files.items():
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()):
            raise VerifierError("a test file lies outside of its folder", where=name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(0o644)
    (folder / "headrace.ini").write_text("[pytest]\n")
    for made in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
        made.chmod(0o755)
    return folder


def libraries() -> dict[str, Path]:
    found: dict[str, Path] = {}
    for name in _PYTEST:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            raise UnavailableError("tests of repositories need a library that is not installed", value=name,
                                   hint="install headrace with its test libraries")
        path = Path(spec.origin)
        found[f"{LIBRARIES}/{name if path.name == '__init__.py' else path.name}"] = (
            path.parent if path.name == "__init__.py" else path)
    return found
