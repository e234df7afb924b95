"""Libraries that tests of a task import: those beside us are mounted for them, with what they need themselves.

A test that cannot import `pandas` fails whatever the submission is, so tests of which one is not here are not run. Only
names that no submission could mean are looked for, and only in the task's own test files.
"""

from __future__ import annotations

import ast
import functools
import importlib.metadata
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

KNOWN = {
    "numpy": "numpy", "scipy": "scipy", "pandas": "pandas", "yaml": "pyyaml", "PIL": "pillow", "requests": "requests",
    "matplotlib": "matplotlib", "sympy": "sympy", "networkx": "networkx", "dateutil": "python-dateutil",
    "pytz": "pytz", "psutil": "psutil", "openpyxl": "openpyxl", "tqdm": "tqdm", "toml": "toml", "tomli": "tomli",
    "jinja2": "jinja2", "jsonschema": "jsonschema", "bs4": "beautifulsoup4", "lxml": "lxml", "flask": "flask",
    "sklearn": "scikit-learn", "cryptography": "cryptography", "sqlalchemy": "sqlalchemy", "pyarrow": "pyarrow",
    "torch": "torch", "tensorflow": "tensorflow", "cv2": "opencv-python", "httpx": "httpx", "aiohttp": "aiohttp",
    "fastapi": "fastapi", "django": "django", "redis": "redis", "psycopg2": "psycopg2-binary", "polars": "polars",
    "transformers": "transformers", "datasets": "datasets", "nltk": "nltk", "statsmodels": "statsmodels",
    "h5py": "h5py", "paramiko": "paramiko", "pexpect": "pexpect", "selenium": "selenium", "xgboost": "xgboost"}
"""Module to distribution."""
_HEAVY = frozenset({"torch", "tensorflow", "transformers", "datasets"})
"""Not mounted: they need what no sandbox has."""


def imported(files: Mapping[str, bytes]) -> set[str]:
    """Known modules that Python files import without a `try`."""
    return {name for path, data in files.items() if path.endswith(".py") for name in _imports(data)} & KNOWN.keys()


def _imports(data: bytes) -> Iterator[str]:
    try:
        nodes: list[ast.AST] = [ast.parse(data)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]
        elif not isinstance(node, ast.Try):
            nodes += ast.iter_child_nodes(node)


def installed_by(files: Mapping[str, bytes]) -> set[str]:
    """Known modules whose distribution a shell script names."""
    text = "\n".join(data.decode(errors="replace").lower() for path, data in files.items() if path.endswith(".sh"))
    return {module for module, name in KNOWN.items()
            if re.search(rf"(?<![\w./-]){re.escape(name)}(?=[=<>~\[\s\"']|$)", text)}


def mounts(modules: Iterable[str], place: str) -> dict[str, Path]:
    """Paths under `place` to what is installed here of these modules and of what they need."""
    found: dict[str, Path] = {}
    for module in sorted(set(modules) - _HEAVY):
        found |= {f"{place}/{name}": path for name, path in _closure(KNOWN[module])}
    return found


def is_here(module: str) -> bool:
    return module not in _HEAVY and bool(_closure(KNOWN[module]))


@functools.cache
def _closure(name: str) -> tuple[tuple[str, Path], ...]:
    """Top-level files and folders of a distribution and of those that it requires."""
    found: dict[str, Path] = {}
    wanted, seen = [name], set[str]()
    while wanted:
        one = wanted.pop()
        if one in seen:
            continue
        seen.add(one)
        try:
            distribution = importlib.metadata.distribution(one)
        except importlib.metadata.PackageNotFoundError:
            continue
        for file in distribution.files or ():
            top = file.parts[0]
            if top not in ("..", "__pycache__") and top not in found:
                found[top] = Path(str(distribution.locate_file(top)))
        wanted += [re.split(r"[^\w.-]", need, maxsplit=1)[0] for need in distribution.requires or ()
                   if "extra ==" not in need]
    return tuple((top, path) for top, path in sorted(found.items()) if path.exists())
