"""`headrace replay score`: stored submissions through today's verifiers, in fresh sandboxes, without a model."""

from __future__ import annotations

import argparse

from headrace.options import add_reading, add_sandbox, add_verifiers, positive, settings_of
from schemas.errors import UserError

EXAMPLES = """examples:
  headrace replay score --all
  headrace replay score --episode 0190b2c4
  headrace replay score --all --verifier stricter.py
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    score = actions.add_parser("score", help="score again; always new rows in the ledger")
    score.add_argument("--all", action="store_true", help="every finished episode")
    score.add_argument("--episode", metavar="ID", help="one episode (id or prefix)")
    score.add_argument("--workers", type=positive, default=2, metavar="N", help="at once (default: 2)")
    add_reading(score)
    add_sandbox(score)
    add_verifiers(score)


def run(options: argparse.Namespace) -> int:
    if bool(options.episode) == options.all:
        raise UserError("name one episode, or --all", hint="`headrace episodes ls` lists them")

    from consumers.sink import Sink
    from headrace.lookup import full_id
    from headrace.output import print_table
    from headrace.progress import counting
    from headrace.rooms import Rooms
    from headrace.service import drain
    from replay.score import rescore, scored_episodes
    from verifiers import registry
    from verifiers.judges import Judges

    with Rooms(settings_of(options)) as rooms:
        lake = rooms.require().lake
        registry.use_files(rooms.settings.verifiers)
        sink = Sink(rooms.log, lake, rooms.artifacts, rooms.settings)
        drain(sink)
        ids = (
            scored_episodes(lake)
            if options.all
            else [full_id(lake, "episodes", "episode_id", options.episode, "episode", "headrace episodes ls")]
        )
        judges = Judges(rooms.settings, rooms.artifacts, options.workers, cached=False)
        with judges, counting("scores", len(ids)) as step:
            report = rescore(
                lake,
                rooms.log,
                judges.score,
                episode_ids=ids,
                workers=options.workers,
                on_score=lambda: step(1),
            )
        drain(sink)
    differing = report.differences()
    if options.output != "table" or differing.num_rows:
        print_table(differing, options.output, options.limit)
    if options.output == "table":
        print(
            f"{report.scored} scored again: {report.equal} equal, {report.changed} changed, {report.failed} failed "
            f"(cause {report.replay_id})"
        )
    return 1 if report.changed or report.failed else 0
