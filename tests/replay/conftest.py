"""A home with scored episodes: requested, produced in real sandboxes, verified and sunk, some right and some wrong."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from consumers.sink import Sink
from consumers.verify import VerifyConsumer
from lake import open_lake
from tasks.tools import training_tasks
from tests.producers.world import World
from verifiers.scoring import here


class Scored(World):
    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.lake = open_lake(self.settings, self.artifacts)

    def score(self) -> None:
        score = here(self.artifacts, self.backend)
        VerifyConsumer(self.log, score, self.settings).run(threading.Event(), until_idle=True)

    def sink(self) -> None:
        Sink(self.log, self.lake, self.artifacts, self.settings).run(threading.Event(), until_idle=True)


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scored]:
    world = Scored(tmp_path_factory.mktemp("home"))
    tasks = training_tasks(3, 0, 4)
    world.request(tasks, "scripted:reference", group_key="right")
    world.request(tasks[:2], "scripted:empty", group_key="wrong")
    world.produce()
    world.score()
    world.sink()
    yield world
    world.close()
