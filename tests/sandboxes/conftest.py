"""All backends, opened as everyone opens them. They are real; where one cannot run its tests say so."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from artifacts.store import DirectoryStore
from sandboxes import open_backend
from sandboxes.docker_backend import DockerBackend
from sandboxes.sandbox import Backend, Sandbox, SandboxSpec
from schemas.errors import UnavailableError
from schemas.settings import Settings
from tests.conftest import require_real
from tests.docker_engine import DockerEngine, engine_here


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[DockerEngine]:
    """One engine for the session; DOCKER_HOST leads to it."""
    engine = engine_here()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", engine.address)
        yield engine
    engine.stop()


def open_here(name: str, home: Path, artifacts: DirectoryStore) -> Backend:
    try:
        return open_backend(Settings(home=str(home), sandbox_backend=name), artifacts)
    except UnavailableError as why:
        require_real(name, why.what)


@pytest.fixture(params=["bubblewrap", "docker", "process"])
def backend(request: pytest.FixtureRequest, tmp_path: Path, artifacts: DirectoryStore) -> Iterator[Backend]:
    if request.param == "docker":
        request.getfixturevalue("docker_engine")
        # Opening by name would try a whole life each time: `test_docker_engine` does.
        opened: Backend = DockerBackend(tmp_path / "home" / "sandboxes", artifacts)
    else:
        opened = open_here(request.param, tmp_path / "home", artifacts)
    yield opened
    opened.close()


@pytest.fixture
def bubblewrap(tmp_path: Path, artifacts: DirectoryStore) -> Iterator[Backend]:
    opened = open_here("bubblewrap", tmp_path / "home", artifacts)
    yield opened
    opened.close()


@pytest.fixture
def sandbox(backend: Backend) -> Iterator[Sandbox]:
    yield from _one(backend)


@pytest.fixture
def isolated(bubblewrap: Backend) -> Iterator[Sandbox]:
    yield from _one(bubblewrap)


def _one(backend: Backend) -> Iterator[Sandbox]:
    opened = backend.acquire(SandboxSpec(files={"data.txt": b"hello\n", "folder/inner.txt": b"inner"}))
    yield opened
    opened.close()


@pytest.fixture
def claims(backend: Backend) -> Callable[[str], None]:
    """Leave a test whose capability the backend does not claim."""

    def check(capability: str) -> None:
        if capability not in backend.capabilities:
            pytest.skip(f"{backend.name} does not claim `{capability}`")

    return check


@pytest.fixture
def ordinary_folder() -> Iterator[Path]:
    """A folder of an ordinary user, and this test as that user: root needs no rights to remove things."""
    with tempfile.TemporaryDirectory() as folder:
        if os.geteuid():
            yield Path(folder)
            return
        os.chown(folder, 65534, 65534)
        os.seteuid(65534)
        try:
            yield Path(folder)
        finally:
            os.seteuid(0)
