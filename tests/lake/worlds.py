"""A real log, a real sink and the lake between them, for tests of what happens to a lake as a whole."""

from __future__ import annotations

import threading
from functools import cached_property
from pathlib import Path

from artifacts import open_store
from consumers.sink import Sink
from eventlog import open_log
from eventlog.inspection import Inspector, inspect_log
from lake import open_lake
from schemas.settings import Settings
from tests.lake.histories import Story, whole_story


class World:
    def __init__(self, home: Path, **settings: object) -> None:
        self.settings = Settings(home=str(home), **settings)  # type: ignore[arg-type]
        self.artifacts = open_store(self.settings)
        self.log = open_log(self.settings)
        self.lake = open_lake(self.settings, self.artifacts)
        self.story = Story(self.artifacts)
        self._told = 0

    def append(self) -> None:
        """What was told since the last time."""
        for topic, event in self.story.told[self._told:]:
            self.log.append(topic, [event]).result()
        self._told = len(self.story.told)

    def sink(self) -> Sink:
        """Append what was told, and sink it."""
        self.append()
        sink = Sink(self.log, self.lake, self.artifacts, self.settings)
        sink.run(threading.Event(), until_idle=True)
        return sink

    def fill(self, episodes: int = 4) -> None:
        whole_story(self.story, episodes)
        self.sink()

    @cached_property
    def inspector(self) -> Inspector:
        return inspect_log(self.settings)

    def close(self) -> None:
        self.log.close()
        if "inspector" in self.__dict__:
            self.inspector.close()
