"""The rooms are ours, and a start of the command line loads nothing heavy through `schemas`."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

ROOMS = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["importlinter"]["root_packages"]
HEAVY = ("torch", "transformers", "pyarrow", "deltalake", "duckdb", "dagster", "kafka", "numpy")
SCHEMAS = sorted(path.stem for path in (REPOSITORY / "schemas").glob("[a-z]*.py"))


@pytest.mark.parametrize("room", ROOMS)
def test_the_imported_room_lies_in_this_repository(room: str) -> None:
    """A package named `verifiers` also exists on the registry."""
    assert Path(importlib.import_module(room).__file__ or "").resolve() == REPOSITORY / room / "__init__.py"


def _loaded_after(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_schemas_pulls_in_nothing_heavy() -> None:
    modules = ", ".join(f"schemas.{name}" for name in SCHEMAS if name != "tables")
    assert not _loaded_after(f"import {modules}") & set(HEAVY)


def test_only_the_arrow_schemas_need_arrow() -> None:
    assert not _loaded_after("import schemas.tables") & {"torch", "transformers", "deltalake", "duckdb", "dagster"}


def test_opening_no_room_loads_nothing_heavy() -> None:
    assert not _loaded_after("import " + ", ".join(ROOMS)) & set(HEAVY)
