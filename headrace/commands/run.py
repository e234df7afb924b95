"""`headrace run`: request, produce, verify and sink in one process until all is scored and in the lake."""

from __future__ import annotations

import argparse

from headrace.commands.request import add_requesting
from headrace.options import add_reading, add_sandbox, add_verifiers, settings_of

EXAMPLES = """examples:
  headrace run --tasks coding --policy scripted:reference
  headrace run --tasks humaneval --policy scripted:empty
  headrace run --tasks tools-heldout --policy tiny --temperature 0.5
"""
_RESULTS = """
select e.kind, e.policy, count(*) as episodes, count(*) filter (s.status = 'ok') as scored,
       count(*) filter (s.reward = 1) as solved, avg(s.reward) as reward,
       string_agg(distinct e.termination, ', ') as termination
from episodes e left join current_scores s using (episode_id)
where e.run_id = $run group by all order by all
"""
_OPEN = """
select count(*) filter (e.episode_id is null) as unfinished,
       count(*) filter (e.submission is not null and s.score_id is null) as unscored,
       count(*) filter (e.termination = 'infra_failure' or s.status <> 'ok') as without_verdict
from requests r left join episodes e using (episode_id) left join current_scores s using (episode_id)
where r.run_id = $run
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_requesting(parser)
    add_reading(parser)
    add_sandbox(parser)
    add_verifiers(parser)


def run(options: argparse.Namespace) -> int:
    import sys

    from headrace.output import counted, print_table
    from headrace.requesting import request_set
    from headrace.rooms import Rooms
    from headrace.service import INTERRUPTED, stopping_on_signals
    from headrace.working import work

    with Rooms(settings_of(options)) as rooms, stopping_on_signals() as stop:
        rooms.make_home()
        judges, _ = rooms.judges, rooms.backend  # what cannot run is found before anything is requested
        requests = request_set(rooms.matched(), options)
        run_id = requests[0].run_id
        print(f"run {run_id}: {counted(len(requests), 'episode')}", file=sys.stderr)
        work(rooms, judges.score, stop, len(requests))
        left = rooms.lake.sql(_OPEN, parameters={"run": run_id}).to_pylist()[0]
        print_table(rooms.lake.sql(_RESULTS, parameters={"run": run_id}), options.output, options.limit)
    if stop.is_set():
        print("interrupted; `headrace produce`, `verify` and `sink` go on where it stopped", file=sys.stderr)
        return INTERRUPTED
    if left["without_verdict"]:
        print(f"{counted(left['without_verdict'], 'episode')} without a verdict; "
              f"`headrace episodes ls --failed --run {run_id}` says why", file=sys.stderr)
    if left["unfinished"] or left["unscored"]:
        print(f"{counted(left['unfinished'], 'episode')} unfinished, {left['unscored']} unscored", file=sys.stderr)
        return 1
    return 0
