"""Shared fixtures: a home in a temporary folder, and the switch that turns a missing real component into a failure."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from artifacts.store import DirectoryStore
from schemas.ids import new_id
from schemas.settings import Settings
from tests.s3_server import S3Server

REPOSITORY = Path(__file__).resolve().parent.parent
SHARED_CASES = REPOSITORY.parent / "shared" / "cases"


def require_real(component: str, why: str) -> NoReturn:
    """Skip with the reason, or fail where `HEADRACE_REQUIRE_REAL=1` says that the component must be there."""
    message = f"{component} is not available: {why}"
    if os.environ.get("HEADRACE_REQUIRE_REAL") == "1":
        pytest.fail(message)
    pytest.skip(message)


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that starts the tests in the background has them, and all that they start, ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def no_verifiers_of_files() -> Iterator[None]:
    """What a test took on from files must not count for the next: composites' digests cover all verifiers there are."""
    yield
    registry = sys.modules.get("verifiers.registry")
    if registry is not None and registry._of_files:
        registry.use_files("")


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


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """One S3 server for the session, on loopback."""
    server = S3Server()
    yield server
    server.stop()


@pytest.fixture
def bucket(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty bucket as `s3://NAME`; the environment leads to its server."""
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    name = f"bucket-{new_id()}"
    s3_server.make_bucket(name)
    return f"s3://{name}"
