"""`headrace sql`: read-only DuckDB over one snapshot of the lake."""

from __future__ import annotations

import argparse
import sys

from headrace.options import add_reading, settings_of

EXAMPLES = """examples:
  headrace sql "select kind, count(*), avg(reward) from episodes join current_scores using (episode_id) group by 1"
  headrace sql "select * from dispositions" -o csv > dispositions.csv
  echo "show tables" | headrace sql -
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("query", help="one SQL query, or - to read it from standard input")
    add_reading(parser)


def run(options: argparse.Namespace) -> int:
    from headrace.output import print_table
    from headrace.rooms import Rooms

    query = sys.stdin.read() if options.query == "-" else options.query
    with Rooms(settings_of(options)) as rooms:
        print_table(rooms.require().lake.sql(query), options.output, options.limit)
    return 0
