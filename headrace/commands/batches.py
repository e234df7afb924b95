"""`headrace batches`: sealed batches, what is in one, and the proof that the lake gives the same bytes again."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from headrace.options import add_reading, settings_of

if TYPE_CHECKING:
    from headrace.rooms import Rooms

EXAMPLES = """examples:
  headrace batches ls
  headrace batches show 0190b2c4
  headrace batches rebuild --all --check
"""
_ROWS_SHOWN = 50
_LIST = """
select batch_id, run_id, step, version, episodes, sequences, tokens, packing, sealed_at, sha256, manifest
from batches where $run = '' or run_id = $run order by sealed_at, step
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    ls = actions.add_parser("ls", help="sealed batches in order")
    ls.add_argument("--run", dest="run_id", default="", metavar="ID", help="only of this run (id or prefix)")
    add_reading(ls)
    show = actions.add_parser("show", help="rows and dispositions of one batch")
    show.add_argument("id", help="the batch's id or a prefix of it")
    add_reading(show)
    rebuild = actions.add_parser("rebuild", help="build batches again from the lake")
    rebuild.add_argument("id", nargs="?", help="the batch's id or a prefix of it")
    rebuild.add_argument("--all", action="store_true", help="every batch")
    rebuild.add_argument("--check", action="store_true", help="exit 1 unless every rebuilt batch is identical")
    add_reading(rebuild)


def run(options: argparse.Namespace) -> int:
    from headrace.rooms import Rooms

    with Rooms(settings_of(options)) as rooms:
        rooms.require()
        return {"ls": _ls, "show": _show, "rebuild": _rebuild}[options.action](rooms, options)


def _ls(rooms: Rooms, options: argparse.Namespace) -> int:
    from headrace.lookup import full_run_id
    from headrace.output import print_table

    run = {"run": full_run_id(rooms.lake, options.run_id)}
    print_table(rooms.lake.sql(_LIST, parameters=run), options.output, options.limit)
    return 0


def _batch_id(rooms: Rooms, prefix: str) -> str:
    from headrace.lookup import full_id

    return full_id(rooms.lake, "batches", "batch_id", prefix, "batch", "headrace batches ls")


def _show(rooms: Rooms, options: argparse.Namespace) -> int:
    from headrace.output import print_table

    batch = {"id": _batch_id(rooms, options.id)}
    rows = rooms.lake.sql("select * from batch_rows where batch_id = $id order by sequence, position", parameters=batch)
    if options.output != "table":
        print_table(rows, options.output, options.limit)
        return 0
    print_table(rooms.lake.sql("select * from batches where batch_id = $id", parameters=batch))
    print("\ndispositions decided by this batch")
    print_table(
        rooms.lake.sql(
            "select disposition, reason, count(*) as episodes from dispositions where batch_id = $id "
            "group by all order by all",
            parameters=batch,
        )
    )
    limit = _ROWS_SHOWN if options.limit is None else options.limit
    print(f"\nrows ({min(limit, rows.num_rows)} of {rows.num_rows})")
    print_table(rows, "table", limit)
    return 0


def _rebuild(rooms: Rooms, options: argparse.Namespace) -> int:
    import pyarrow as pa

    from headrace.output import print_table
    from replay.batch import rebuild_batches
    from schemas.errors import UserError

    if bool(options.id) == options.all:
        raise UserError("name one batch, or --all", hint="`headrace batches ls` lists them")
    ids = None if options.all else [_batch_id(rooms, options.id)]
    results = list(rebuild_batches(rooms.lake, rooms.artifacts, ids))
    names = ("batch_id", "run_id", "step", "result", "detail")
    table = pa.table({name: [getattr(result, name) for result in results] for name in names})
    print_table(table, options.output, options.limit)
    identical = sum(r.result == "identical" for r in results)
    if options.output == "table":
        print(f"\n{identical} of {len(results)} batches identical")
    return 1 if options.check and identical < len(results) else 0
