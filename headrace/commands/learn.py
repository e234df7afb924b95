"""`headrace learn`: the Megatron-Core learner of one run, by torchrun."""

from __future__ import annotations

import argparse
import os
import sys

from headrace.options import add_home, run_id, settings_of

EXAMPLES = """examples:
  headrace learn --run 0190b2c4-7d3e-7c55-b0ee-9d2b6b6f6d2a
  headrace learn --run RUN_ID --base path/to/hf_model
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--run", dest="run_id", required=True, type=run_id, metavar="RUN_ID", help="whose batches to train on"
    )
    parser.add_argument("--base", metavar="DIR", help="Hugging Face directory of version 0 (default: the tiny base)")
    add_home(parser)


def run(options: argparse.Namespace) -> int:
    from pathlib import Path

    from headrace.rooms import Rooms
    from producers.policies import TINY_BASE
    from schemas.errors import UserError
    from training.launch import learner_command

    settings = settings_of(options)
    Rooms(settings).make_home()
    base = Path(options.base) if options.base else TINY_BASE
    if not (base / "config.json").exists():
        raise UserError(
            "not a model directory: config.json is missing",
            where=str(base),
            hint="--base names a Hugging Face directory with config.json and model.safetensors",
        )
    print(f"learner of run {options.run_id}: waits for sealed batches; Ctrl-C ends it", file=sys.stderr, flush=True)
    command = learner_command(settings, options.run_id, base)
    os.execvpe(command[0], command, os.environ)
