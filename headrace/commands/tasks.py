"""`headrace tasks`: import task sets, check them, list what is registered."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.options import add_home, add_reading, add_sandbox, add_verifiers, positive, settings_of
from tasks.importers import IMPORTERS

if TYPE_CHECKING:
    from schemas.errors import TaskError
    from tasks.task import Task

NOTES_SHOWN = 10
EXAMPLES = """examples:
  headrace tasks import humaneval HumanEval.jsonl.gz
  headrace tasks import gsm8k test.jsonl
  headrace tasks import harbor my-tasks/        Harbor or Terminal-Bench: one, or a folder; sound ones are taken
  headrace tasks check humaneval                reference solutions and empty ones; what fails is quarantined
  headrace tasks ls
  headrace tasks ls --set humaneval -o json
"""
_QUERY = """
select task_id, kind, set, difficulty, quarantined, reason, digest from tasks
where $set = '' or set = $set order by set, task_id
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    load = actions.add_parser("import", help="register the tasks of a file")
    load.add_argument("format", metavar="FORMAT", help=", ".join(IMPORTERS))
    load.add_argument("file", metavar="FILE", help="a file; a folder for `invoices`, `harbor` and `bfcl`")
    add_home(load)
    check = actions.add_parser("check", help="run reference and empty solutions; quarantine what cannot be trained on")
    check.add_argument("set", metavar="SET", help="a built-in or imported task set")
    check.add_argument("--repeats", type=positive, default=3, metavar="N",
                       help="times that each reference solution is run (default: 3)")
    add_reading(check)
    add_sandbox(check)
    add_verifiers(check)
    ls = actions.add_parser("ls", help="registered tasks")
    ls.add_argument("--set", default="", help="only of this set")
    add_reading(ls)


def run(options: argparse.Namespace) -> int:
    return {"import": _import, "check": _check, "ls": _ls}[options.action](options)


def _import(options: argparse.Namespace) -> int:
    from consumers.sink import Sink
    from headrace.output import counted, in_line
    from headrace.rooms import Rooms
    from headrace.service import drain
    from producers.request import register_tasks
    from tasks.importers import load_tasks

    refused: list[TaskError] = []
    tasks = load_tasks(options.format, options.file, refused)
    with Rooms(settings_of(options)) as rooms:
        rooms.make_home().matched()
        registered = register_tasks(rooms.log, rooms.artifacts, tasks)
        drain(Sink(rooms.log, rooms.lake, rooms.artifacts, rooms.settings))
    names = sorted({task.set for task in registered})
    print(f"registered {counted(len(registered), 'task')} in set {', '.join(names)}")
    _print_notes(tasks)
    for wrong in refused:
        print(f"not taken: {in_line(str(wrong))}")
    if refused:
        print(f"{len(refused)} of {len(refused) + len(tasks)} tasks were not taken")
    print(f"next: headrace run --tasks {names[0]} --policy scripted:reference")
    return 1 if refused else 0


def _print_notes(tasks: Sequence[Task]) -> None:
    """What tasks ask for and do not get, the most common first; each verdict's evidence has those of its task."""
    notes = Counter(note for task in tasks for note in dict.fromkeys(task.hidden.get("notes", [])))
    for note, count in notes.most_common(NOTES_SHOWN):
        print(f"note: {note}" + (f" ({count} tasks)" if len(tasks) > 1 else ""))
    if len(notes) > NOTES_SHOWN:
        print(f"note: and {len(notes) - NOTES_SHOWN} more, in the evidence of each verdict")


def _check(options: argparse.Namespace) -> int:
    import sys

    from headrace.checking import check, mark
    from headrace.output import counted, print_table
    from headrace.requesting import tasks_of_set
    from headrace.rooms import Rooms
    from headrace.service import stopping_on_signals
    from replay.admission import table_of

    with Rooms(settings_of(options)) as rooms, stopping_on_signals() as stop:
        rooms.make_home().matched()
        tasks = tasks_of_set(rooms, options.set)
        run_id, found = check(rooms, tasks, options.repeats, stop)
        if stop.is_set():
            print("interrupted; nothing was marked", file=sys.stderr)
            return 130
        marked = mark(rooms, tasks, found, run_id)
    wrong = [ruling for ruling in found if ruling.finding != "sound"]
    if options.output != "table" or wrong:
        print_table(table_of(found if options.output != "table" else wrong), options.output, options.limit)
    if options.output == "table":
        print(f"{counted(len(found), 'task')} checked: {len(found) - len(wrong)} sound; "
              f"{marked.quarantined} newly quarantined, {marked.released} released (run {run_id})")
    return 1 if wrong else 0


def _ls(options: argparse.Namespace) -> int:
    from headrace.lookup import known
    from headrace.output import print_table
    from headrace.rooms import Rooms

    with Rooms(settings_of(options)) as rooms:
        lake = rooms.require().lake
        wanted = {"set": known(lake, "tasks", "set", options.set, "task set")}
        print_table(lake.sql(_QUERY, parameters=wanted), options.output, options.limit)
    return 0
