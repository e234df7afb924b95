"""`headrace tasks`: import task sets, list what is registered and what is built in."""

from __future__ import annotations

import argparse

from headrace.options import add_home, add_reading, settings_of

EXAMPLES = """examples:
  headrace tasks import humaneval HumanEval.jsonl.gz
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
    load.add_argument("format", metavar="FORMAT", help="humaneval")
    load.add_argument("file", metavar="FILE")
    add_home(load)
    ls = actions.add_parser("ls", help="registered tasks")
    ls.add_argument("--set", default="", help="only of this set")
    add_reading(ls)


def run(options: argparse.Namespace) -> int:
    return _import(options) if options.action == "import" else _ls(options)


def _import(options: argparse.Namespace) -> int:
    from consumers.sink import Sink
    from headrace.rooms import Rooms
    from headrace.service import drain
    from producers.request import register_tasks
    from tasks.importers import load_tasks

    tasks = load_tasks(options.format, options.file)
    with Rooms(settings_of(options)) as rooms:
        rooms.make_home().matched()
        registered = register_tasks(rooms.log, rooms.artifacts, tasks)
        drain(Sink(rooms.log, rooms.lake, rooms.artifacts, rooms.settings))
    names = sorted({task.set for task in registered})
    print(f"registered {len(registered)} task{'s' if len(registered) > 1 else ''} in set {', '.join(names)}")
    print(f"next: headrace run --tasks {names[0]} --policy scripted:reference")
    return 0


def _ls(options: argparse.Namespace) -> int:
    from headrace.lookup import known
    from headrace.output import print_table
    from headrace.rooms import Rooms

    with Rooms(settings_of(options)) as rooms:
        lake = rooms.require().lake
        wanted = {"set": known(lake, "tasks", "set", options.set, "task set")}
        print_table(lake.sql(_QUERY, parameters=wanted), options.output, options.limit)
    return 0
