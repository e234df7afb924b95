"""Shared fixtures: a home in a temporary folder, and the switch that turns a missing real component into a failure."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from artifacts.store import DirectoryStore
from schemas.settings import Settings

REPOSITORY = Path(__file__).resolve().parent.parent
SHARED_CASES = REPOSITORY.parent / "shared" / "cases"


def require_real(component: str, why: str) -> NoReturn:
    """Skip with the reason, or fail where `HEADRACE_REQUIRE_REAL=1` says that the component must be there."""
    message = f"{component} is not available: {why}"
    if os.environ.get("HEADRACE_REQUIRE_REAL") == "1":
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=str(tmp_path / "home"))


@pytest.fixture
def artifacts(tmp_path: Path) -> DirectoryStore:
    return DirectoryStore(tmp_path / "artifacts")


@pytest.fixture
def cases() -> Callable[[str], Path]:
    """A file of the shared real inputs; skips with a reason where they are absent."""

    def find(name: str) -> Path:
        path = SHARED_CASES / name
        if not path.exists():
            pytest.skip(f"shared case {name} is not on this machine")
        return path

    return find
