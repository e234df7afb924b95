from __future__ import annotations

import pytest

from artifacts.store import DirectoryStore
from lake import open_lake
from lake.lake import Lake
from schemas.settings import Settings
from tests.lake.histories import Story


@pytest.fixture
def lake(settings: Settings, artifacts: DirectoryStore) -> Lake:
    return open_lake(settings, artifacts)


@pytest.fixture
def story(artifacts: DirectoryStore) -> Story:
    return Story(artifacts)
