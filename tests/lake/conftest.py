from __future__ import annotations

from pathlib import Path

import pytest

from artifacts import open_store
from artifacts.store import ArtifactStore
from lake import open_lake
from lake.lake import Lake
from schemas.settings import Settings
from tests.lake.histories import Story

STORAGES = ["directory", "s3"]


@pytest.fixture
def storage() -> str:
    """Where lake and artifacts lie. A module that must hold on both overrides it with `params=STORAGES`."""
    return "directory"


@pytest.fixture
def settings(request: pytest.FixtureRequest, tmp_path: Path, storage: str) -> Settings:
    home = str(tmp_path / "home")
    if storage == "directory":
        return Settings(home=home)
    bucket = request.getfixturevalue("bucket")
    return Settings(home=home, lake=f"{bucket}/a läke", artifacts=f"{bucket}/artifacts")


@pytest.fixture
def artifacts(settings: Settings, storage: str, tmp_path: Path) -> ArtifactStore:
    return open_store(settings if storage == "s3" else Settings(artifacts=str(tmp_path / "artifacts")))


@pytest.fixture
def lake(settings: Settings, artifacts: ArtifactStore) -> Lake:
    return open_lake(settings, artifacts)


@pytest.fixture
def story(artifacts: ArtifactStore) -> Story:
    return Story(artifacts)
