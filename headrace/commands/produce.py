"""`headrace produce`: the producer as a service."""

from __future__ import annotations

import argparse

from headrace.options import add_home, add_sandbox, settings_of

EXAMPLES = """examples:
  headrace produce                   until Ctrl-C
  headrace produce --until-idle      run what is requested now, then stop
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--until-idle", action="store_true", help="stop when every request made so far is finished")
    add_home(parser)
    add_sandbox(parser)


def run(options: argparse.Namespace) -> int:
    from headrace.progress import counting
    from headrace.rooms import Rooms
    from headrace.service import serve
    from producers.producer import Producer

    with Rooms(settings_of(options)) as rooms, counting("episodes", None) as advance:
        rooms.make_home()
        producer = Producer(rooms.log, rooms.artifacts, rooms.backend, rooms.settings, lake=rooms.lake,
                            on_finished=lambda _: advance(1))
        return serve(producer, options.until_idle)
