"""`headrace sql`: read-only DuckDB over one snapshot of the lake."""

from __future__ import annotations

import argparse
import sys

from headrace.options import add_reading, settings_of

EXAMPLES = """examples:
  headrace sql "select kind, count(*), avg(reward) from episodes join current_scores using (episode_id) group by 1"
  headrace sql "select * from dispositions" -o csv > dispositions.csv
  headrace sql "select * from turns" --out turns.parquet
  headrace sql "select count(*) from scores" --as-of 2026-12-01T08:30:00Z
  headrace sql "select * from dispositions" --as-of batch:0190b2c4
  echo "show tables" | headrace sql -
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("query", help="one SQL query, or - to read it from standard input")
    parser.add_argument("--as-of", metavar="WHEN",
                        help="the lake as it was: a snapshot (JSON, a file of it, or topic-partition:offset,...), the "
                             "newest one committed by a time (ISO 8601, UTC), or batch:ID")
    parser.add_argument("--out", metavar="FILE", help="write the whole result to FILE.parquet, .csv, .json or .jsonl, "
                                                      "a few rows at a time")
    parser.add_argument("--force", action="store_true", help="with --out: replace the file if it is there")
    add_reading(parser)


def run(options: argparse.Namespace) -> int:
    from headrace.output import print_table
    from headrace.rooms import Rooms
    from schemas.errors import UserError

    if options.force and not options.out:
        raise UserError("--force goes with --out", where="headrace sql")
    if options.out:
        from headrace.export import require_writable

        require_writable(options.out, options.force)
    query = sys.stdin.read() if options.query == "-" else options.query
    with Rooms(settings_of(options)) as rooms:
        lake, as_of = rooms.require().lake, None
        if options.as_of is not None:
            from headrace.lookup import full_id
            from lake.asof import snapshot_named

            as_of = snapshot_named(lake, options.as_of, lambda prefix: full_id(
                lake, "batches", "batch_id", prefix, "batch", "headrace batches ls"))
        if options.out:
            from headrace.export import export

            rows = export(lake, query, options.out, as_of=as_of, limit=options.limit, force=options.force)
            print(f"{rows} rows written to {options.out}", file=sys.stderr)
            return 0
        print_table(lake.sql(query, as_of), options.output, options.limit)
    return 0
