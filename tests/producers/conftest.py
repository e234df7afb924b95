from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.eventlog.conftest import broker, forget_topics
from tests.producers.world import World

__all__ = ["broker"]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    opened = World(tmp_path / "home")
    yield opened
    opened.close()


@pytest.fixture
def kafka_world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """A world whose log is a real Kafka broker."""
    running = request.getfixturevalue("broker")
    forget_topics(running.address)
    opened = World(tmp_path / "home", running.log_setting)
    yield opened
    opened.close()
