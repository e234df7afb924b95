"""`headrace sink`: the lake's writer as a service."""

from __future__ import annotations

import argparse

from headrace.options import add_home, settings_of

EXAMPLES = """examples:
  headrace sink                      until Ctrl-C
  headrace sink --until-idle         write what the log holds now, then stop
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--until-idle", action="store_true", help="stop when the lake has all that the log holds now")
    add_home(parser)


def run(options: argparse.Namespace) -> int:
    from consumers.sink import Sink
    from headrace.rooms import Rooms
    from headrace.service import serve

    with Rooms(settings_of(options)) as rooms:
        rooms.make_home()
        return serve(Sink(rooms.log, rooms.lake, rooms.artifacts, rooms.settings), options.until_idle)
