"""From a set's name to requests: built-in sets are registered on first use, imported ones are looked up."""

from __future__ import annotations

import argparse
import difflib
import sys

from headrace.rooms import Rooms
from schemas.errors import NotFoundError, UserError
from schemas.events import EpisodeRequested, Sampling, TaskRegistered
from schemas.ids import new_id


def request_set(rooms: Rooms, options: argparse.Namespace) -> list[EpisodeRequested]:
    """Request what `--tasks --policy --samples --purpose` say. Raises NotFoundError for an unknown set."""
    from producers.policies import check_policy
    from producers.request import request_episodes

    check_policy(options.policy)
    tasks = tasks_of_set(rooms, options.tasks)
    sound = [task for task in tasks if not task.quarantined]
    if not sound:
        raise UserError(
            "every task of this set is quarantined", value=options.tasks, hint="`headrace tasks ls` says why"
        )
    if left := len(tasks) - len(sound):
        print(f"{left} quarantined tasks are left out; `headrace tasks ls` says why", file=sys.stderr)
    return request_episodes(
        rooms.log,
        sound,
        run_id=options.run_id or new_id(),
        policy=options.policy,
        purpose=options.purpose,
        samples=options.samples,
        sampling=Sampling(temperature=options.temperature, seed=options.seed),
    )


def tasks_of_set(rooms: Rooms, name: str) -> list[TaskRegistered]:
    """The registered tasks of a set as they stand now, in registration order; quarantined ones too."""
    from producers.request import register_tasks, registered_tasks
    from tasks.sets import builtin_sets

    builtin = builtin_sets()
    if name in builtin:
        wanted = {task.digest for task in register_tasks(rooms.log, rooms.artifacts, builtin[name]())}
        return [task for task in registered_tasks(rooms.log) if task.set == name and task.digest in wanted]
    known = registered_tasks(rooms.log)
    found = [task for task in known if task.set == name]
    if not found:
        names = sorted({*builtin, *(task.set for task in known)})
        close = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean `{close[0]}`?" if close else f"known sets: {', '.join(names)}"
        raise NotFoundError("no such task set", value=name, hint=hint)
    return found
