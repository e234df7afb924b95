"""`headrace verify`: the verify consumer as a service."""

from __future__ import annotations

import argparse

from headrace.options import add_home, add_sandbox, add_verifiers, settings_of

EXAMPLES = """examples:
  headrace verify                    until Ctrl-C
  headrace verify --until-idle       score what is finished now, then stop
  headrace verify --verifier my_domain.py
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--until-idle", action="store_true", help="stop when every finished episode is scored")
    add_home(parser)
    add_sandbox(parser)
    add_verifiers(parser)


def run(options: argparse.Namespace) -> int:
    from consumers.verify import VerifyConsumer
    from headrace.progress import counting
    from headrace.rooms import Rooms
    from headrace.service import serve

    with Rooms(settings_of(options)) as rooms, counting("scores", None) as advance:
        rooms.make_home()
        consumer = VerifyConsumer(rooms.log, rooms.judges.score, rooms.settings, lake=rooms.lake,
                                  on_scored=lambda _: advance(1))
        return serve(consumer, options.until_idle)
