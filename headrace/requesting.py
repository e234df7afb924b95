"""From a set's name to requests: built-in sets are registered on first use, imported ones are looked up."""

from __future__ import annotations

import argparse
import difflib

from headrace.rooms import Rooms
from schemas.errors import NotFoundError
from schemas.events import EpisodeRequested, Sampling, TaskRegistered
from schemas.ids import new_id


def request_set(rooms: Rooms, options: argparse.Namespace) -> list[EpisodeRequested]:
    """Request what `--tasks --policy --samples --purpose` say. Raises NotFoundError for an unknown set."""
    from producers.policies import check_policy
    from producers.request import request_episodes

    check_policy(options.policy)
    return request_episodes(
        rooms.log,
        tasks_of_set(rooms, options.tasks),
        run_id=options.run_id or new_id(),
        policy=options.policy,
        purpose=options.purpose,
        samples=options.samples,
        sampling=Sampling(temperature=options.temperature, seed=options.seed),
    )


def tasks_of_set(rooms: Rooms, name: str) -> list[TaskRegistered]:
    """The registered tasks of a set, in registration order."""
    from producers.request import register_tasks, registered_tasks
    from tasks.sets import builtin_sets

    builtin = builtin_sets()
    if name in builtin:
        return register_tasks(rooms.log, rooms.artifacts, builtin[name]())
    known = registered_tasks(rooms.log)
    found = [task for task in known if task.set == name]
    if not found:
        names = sorted({*builtin, *(task.set for task in known)})
        close = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean `{close[0]}`?" if close else f"known sets: {', '.join(names)}"
        raise NotFoundError("no such task set", value=name, hint=hint)
    return found
