"""Task admission: a run of references and empty solutions, and what its verdicts mean for the tasks."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from replay.admission import EMPTY, QUARANTINED, REFERENCE, Ruling, rulings
from schemas.ids import new_id, now_us

if TYPE_CHECKING:
    from headrace.rooms import Rooms
    from schemas.events import TaskRegistered


class Marked(NamedTuple):
    quarantined: int
    released: int


def check(rooms: Rooms, tasks: Sequence[TaskRegistered], repeats: int,
          stop: threading.Event) -> tuple[str, list[Ruling]]:
    """Run them all; the run's id and a ruling for each task. Verdicts are given anew each time, never remembered."""
    from headrace.working import work
    from producers.request import request_episodes
    from tasks.task import load_task
    from verifiers import registry
    from verifiers.judges import Judges

    solved = [task for task in tasks if load_task(task.digest, rooms.artifacts).reference]
    run_id = new_id()
    registry.use_files(rooms.settings.verifiers)
    rooms.backend  # noqa: B018 - a sandbox that cannot run is found before anything is requested
    requests = request_episodes(rooms.log, solved, run_id=run_id, policy=REFERENCE, purpose="eval", samples=repeats)
    requests += request_episodes(rooms.log, solved, run_id=run_id, policy=EMPTY, purpose="eval")
    with Judges(rooms.settings, rooms.artifacts, rooms.settings.verify_workers, cached=False) as judges:
        work(rooms, judges.score, stop, len(requests))
    unsolved = {task.task_id for task in tasks} - {task.task_id for task in solved}
    return run_id, rulings(rooms.lake, run_id, sorted(unsolved))


def mark(rooms: Rooms, tasks: Sequence[TaskRegistered], found: Sequence[Ruling], run_id: str) -> Marked:
    """Quarantine what must not be trained on, release what is sound again, and let the lake know."""
    from consumers.sink import Sink
    from headrace.service import drain
    from producers.request import mark_tasks

    rulings_of = {ruling.task_id: ruling for ruling in found}
    marked = []
    for task in tasks:
        ruling = rulings_of[task.task_id]
        if ruling.finding != "unchecked" and task.quarantined != (ruling.finding in QUARANTINED):
            reason = f"{ruling.finding}: {ruling.reason}" if ruling.finding in QUARANTINED else ""
            marked.append(msgspec.structs.replace(task, quarantined=not task.quarantined, reason=reason, at=now_us()))
    mark_tasks(rooms.log, marked, run_id)
    drain(Sink(rooms.log, rooms.lake, rooms.artifacts, rooms.settings))
    quarantined = sum(task.quarantined for task in marked)
    return Marked(quarantined, len(marked) - quarantined)
