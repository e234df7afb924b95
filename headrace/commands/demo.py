"""`headrace demo`: the whole loop. A finished demo prints its report again; an interrupted one goes on."""

from __future__ import annotations

import argparse

from headrace.options import add_home, add_sandbox, natural, positive, settings_of

EXAMPLES = """examples:
  headrace demo
  headrace demo --steps 60 --seed 1
  headrace demo --from-scratch       make the base model again first: log, lake, one supervised batch, Megatron-Core
  headrace demo --fresh              a new run; earlier ones stay in the home
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=positive, default=16, metavar="N", help="GRPO steps (default: 16)")
    parser.add_argument("--seed", type=natural, default=0, metavar="S")
    parser.add_argument(
        "--from-scratch", action="store_true", help="make the base model again instead of the shipped one"
    )
    parser.add_argument("--fresh", action="store_true", help="start a new run instead of going on")
    add_home(parser)
    add_sandbox(parser)


def run(options: argparse.Namespace) -> int:
    from headrace.demo.plan import only_one, open_plan
    from headrace.demo.session import run_demo
    from headrace.rooms import Rooms

    with Rooms(settings_of(options)) as rooms:
        rooms.make_home().backend  # noqa: B018 - a sandbox that cannot run stops the demo before anything is written
        with only_one(rooms.home):
            plan = open_plan(
                rooms.home,
                seed=options.seed,
                steps=options.steps,
                from_scratch=options.from_scratch,
                fresh=options.fresh,
            )
            return run_demo(rooms, plan)
