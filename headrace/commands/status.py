"""`headrace status`: what is in this home, and how far each reader is."""

from __future__ import annotations

import argparse

from headrace.options import add_reading, settings_of

EXAMPLES = """examples:
  headrace status
  headrace status -o json
"""
_RUNS = """
select d.run_id, count(*) as episodes,
       count(*) filter (d.disposition = 'trained') as trained,
       count(*) filter (d.disposition = 'evaluated') as evaluated,
       count(*) filter (d.disposition = 'pending') as pending,
       count(*) filter (d.disposition not in ('trained', 'evaluated', 'pending')) as other,
       (select count(*) from batches b where b.run_id = d.run_id) as batches,
       (select max(version) from weights w where w.run_id = d.run_id) as newest_version
from dispositions d group by d.run_id order by d.run_id
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_reading(parser)


def run(options: argparse.Namespace) -> int:
    import pyarrow as pa

    from headrace.output import print_tables
    from headrace.rooms import Rooms
    from schemas.topics import TOPICS

    with Rooms(settings_of(options)) as rooms:
        rooms.require()
        ends, lake = rooms.log.ends(TOPICS), rooms.lake.snapshot()
        rows = [
            {
                "topic": topic,
                "partition": partition,
                "log": end,
                "lake": (at := lake.get(f"{topic}-{partition}", 0)),
                "lag": end - at,
            }
            for (topic, partition), end in sorted(ends.items())
        ]
        tables = {"readers": pa.Table.from_pylist(rows), "runs": rooms.lake.sql(_RUNS)}
        print_tables(tables, options.output, options.limit)
    return 0
