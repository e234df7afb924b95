"""`headrace request`: write requests for episodes; a producer picks them up."""

from __future__ import annotations

import argparse

from headrace.options import add_home, positive, run_id, settings_of, temperature

EXAMPLES = """examples:
  headrace request --tasks coding --policy scripted:reference
  headrace request --tasks tools --policy tiny --samples 8 --purpose train
"""


def add_requesting(parser: argparse.ArgumentParser) -> None:
    """The flags that `request` and `run` share."""
    parser.add_argument("--tasks", required=True, metavar="SET", help="a built-in or imported task set")
    parser.add_argument(
        "--policy",
        required=True,
        metavar="P",
        help="tiny, transformers:DIR, scripted:reference, scripted:empty, scripted:FILE",
    )
    parser.add_argument("--samples", type=positive, default=1, metavar="N", help="episodes a task (default: 1)")
    parser.add_argument("--purpose", choices=("train", "eval"), default="eval", help="default: eval")
    parser.add_argument("--temperature", type=temperature, default=1.0, metavar="T", help="default: 1.0")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="default: 0")
    parser.add_argument(
        "--run", dest="run_id", type=run_id, metavar="RUN_ID", help="add to this run (default: a new one)"
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_requesting(parser)
    add_home(parser)


def run(options: argparse.Namespace) -> int:
    from headrace.requesting import request_set
    from headrace.rooms import Rooms

    with Rooms(settings_of(options)) as rooms:
        requests = request_set(rooms.make_home(), options)
    print(f"requested {len(requests)} episodes in run {requests[0].run_id}")
    print("next: headrace produce --until-idle && headrace verify --until-idle && headrace sink --until-idle")
    return 0
