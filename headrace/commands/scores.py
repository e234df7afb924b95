"""`headrace scores ls`: the ledger, newest first."""

from __future__ import annotations

import argparse

from headrace.options import add_reading, settings_of

EXAMPLES = """examples:
  headrace scores ls --limit 10
  headrace scores ls --episode 0190b2c4-7d3e-7c55-b0ee-9d2b6b6f6d2a -o json
"""
_QUERY = """
select episode_id, verifier, status, reward, components, cause, supersedes, scored_at, score_id
from scores where $episode = '' or episode_id = $episode order by scored_at desc, score_id
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("ls",))
    parser.add_argument("--episode", default="", metavar="ID", help="only of this episode (id or prefix)")
    add_reading(parser)


def run(options: argparse.Namespace) -> int:
    from headrace.lookup import full_id
    from headrace.output import print_table
    from headrace.rooms import Rooms

    with Rooms(settings_of(options)) as rooms:
        lake, episode = rooms.require().lake, options.episode
        if episode:
            episode = full_id(lake, "requests", "episode_id", episode, "episode", "headrace episodes ls")
        table = lake.sql(_QUERY, parameters={"episode": episode})
        print_table(table, options.output, 50 if options.limit is None else options.limit)
    return 0
