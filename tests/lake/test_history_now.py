"""The history of an episode is right at every moment: archive, tail, both, in the middle of a flush, after a crash."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from consumers.sink import Sink
from lake import open_lake
from lake.history import history_now
from replay.rebuild import rebuild
from schemas.envelope import Event
from schemas.topics import TRAJECTORIES
from tests.lake.worlds import World

EPISODES = [f"e{number}" for number in range(6)]


class Died(BaseException):
    """The sink's process is gone."""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "home", sink_flush_rows=7)
    yield world
    world.close()


class Watch:
    """Looks at all histories wherever the sink passes a failpoint, and lets it die at some."""

    def __init__(self, world: World, chance: random.Random) -> None:
        self.world, self.chance = world, chance
        self.deadly = 0.0
        self.looked = 0
        self._reader = open_lake(world.settings, world.artifacts)

    def hit(self, name: str) -> None:
        self.look()
        if self.chance.random() < self.deadly:
            raise Died(name)

    def look(self) -> None:
        """Both as a reader that was there before and as one that is new."""
        told: dict[str, list[Event]] = {}
        for topic, event in self.world.story.told:
            if topic == TRAJECTORIES:
                told.setdefault(event.subject, []).append(event)
        reader = self._reader if self.chance.random() < 0.5 else open_lake(self.world.settings, self.world.artifacts)
        assert history_now(reader, self.world.log, [*EPISODES, "nobody"]) == told
        self.looked += 1


@pytest.mark.parametrize("seed", range(2))
def test_a_history_is_whole_at_every_moment(world: World, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    watch = Watch(world, chance)
    for module in ("lake.commit", "lake.writer", "consumers.sink"):
        monkeypatch.setattr(f"{module}.hit", watch.hit)
    for _ in range(4):
        for _ in range(chance.randint(1, 8)):
            name = chance.choice(EPISODES)
            if name not in world.story.sequences:
                world.story.start(name)
            world.story.turn(name, len(world.story.told), source=chance.choice(["writer-1", "zombie"]),
                             sequence=chance.choice([None, None, 3]))
        world.append()
        watch.look()
        watch.deadly = chance.choice([0.0, 0.2])
        lake = open_lake(world.settings, world.artifacts)
        with suppress(Died):
            Sink(world.log, lake, world.artifacts, world.settings).run(threading.Event(), until_idle=True)
        if chance.random() < 0.4:
            world.lake.compact()
        if chance.random() < 0.3:
            watch.deadly = 0.0
            rebuild(world.lake, world.log, world.inspector, world.artifacts)
        watch.look()
    assert watch.looked > 15


def test_a_lake_that_cannot_be_read_is_not_needed(world: World) -> None:
    world.story.episode("e0")
    world.sink()
    entry = world.lake.root / "events" / "_delta_log" / f"{0:020d}.json"
    entry.write_bytes(b"{")
    lake = open_lake(world.settings, world.artifacts)
    told = [event for topic, event in world.story.told if topic == TRAJECTORIES]
    assert history_now(lake, world.log, ["e0"]) == {"e0": told}
