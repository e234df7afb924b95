"""Waiting on the log's tail, minding the child processes meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from headrace.demo.screen import Screen
from headrace.demo.watch import Watch
from headrace.rooms import Rooms
from headrace.supervisor import Child, Supervisor

_TICK_S = 0.1


def start_services(rooms: Rooms, supervisor: Supervisor, run_id: str, base: Path) -> None:
    """The four services of a run, each a process of its own."""
    for name, arguments in {
        "sink": ["sink"],
        "verify": ["verify"],
        "produce": ["produce"],
        "learn": ["learn", "--run", run_id, "--base", str(base)],
    }.items():
        supervisor.start(Child(name, arguments, rooms.settings))


class Waiting:
    def __init__(self, rooms: Rooms, watch: Watch, supervisor: Supervisor, screen: Screen) -> None:
        self._rooms, self._watch, self._supervisor, self._screen = rooms, watch, supervisor, screen

    def until_settled(self, what: str, ids: Collection[str]) -> None:
        """Until every one of these episodes is scored or ended with nothing to score."""
        self.until(what, lambda: self._watch.settled(ids) == len(ids), lambda: (self._watch.settled(ids), len(ids)))

    def until(self, what: str, done: Callable[[], bool], count: Callable[[], tuple[int, int]] | None = None) -> None:
        while not done():
            with self._watch.changed:
                self._watch.changed.wait(_TICK_S)
            if self._watch.failure:
                raise self._watch.failure
            for name in self._supervisor.watch():
                self._screen.note(f"{name} died and was started again")
            self._screen.waiting(what, count() if count else None)

    def watch_caught_up(self) -> bool:
        ends = self._rooms.log.ends(("requests", "trajectories", "scores", "training"))
        return all(self._watch.positions.get(partition, 0) >= end for partition, end in ends.items())

    def lake_caught_up(self) -> bool:
        """The lake holds all that the watch has seen."""
        wanted = dict(self._watch.positions)
        reached = self._rooms.lake.positions()
        return all(reached.get(partition, 0) >= end for partition, end in wanted.items())
