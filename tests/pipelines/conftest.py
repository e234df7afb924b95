"""Homes with a real log, sink, lake and store; Dagster's instance of each is closed with it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.instance import open_instance
from schemas.settings import Settings
from tests.pipelines.faults import Tampered
from training.spec import BatchSpec

SPEC = BatchSpec(groups=2, group_size=2, sequence_length=32, minibatches=1)
"""Two groups of two make a batch."""


@pytest.fixture(scope="session")
def fresh_instance(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as `open_instance` makes it: copied, because Dagster takes a second to make its databases."""
    home = tmp_path_factory.mktemp("instance")
    with open_instance(Settings(home=str(home))):
        return home / "dagster"


@pytest.fixture
def world(tmp_path: Path, fresh_instance: Path) -> Iterator[Tampered]:
    from pipelines.rooms import close_rooms
    from pipelines.run import close_runners

    world = Tampered(tmp_path / "home")
    shutil.copytree(fresh_instance, tmp_path / "home" / "dagster")
    yield world
    close_runners()
    close_rooms()
    world.close()
