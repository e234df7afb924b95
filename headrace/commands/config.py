"""`headrace config show`: every setting, its value and where it came from."""

from __future__ import annotations

import argparse
import json

from headrace.options import add_home, add_output, add_sandbox, resolved_of

EXAMPLES = """examples:
  headrace config show
  HEADRACE_SANDBOX_MEMORY_MB=1024 headrace config show -o json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("show",))
    add_output(parser)
    add_home(parser)
    add_sandbox(parser)


def run(options: argparse.Namespace) -> int:
    from headrace.output import print_rows

    resolved = resolved_of(options)
    rows = {key: (getattr(resolved.settings, key), source) for key, source in resolved.sources.items()}
    if options.output == "json":
        print(json.dumps({key: {"value": value, "source": source} for key, (value, source) in rows.items()}, indent=2))
        return 0
    print_rows(["setting", "value", "source"], [[key, *row] for key, row in rows.items()], options.output)
    return 0
