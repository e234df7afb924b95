"""`headrace config show`: every setting, its value and where it came from."""

from __future__ import annotations

import argparse
import json

from headrace.options import add_home, add_sandbox, resolved_of

EXAMPLES = """examples:
  headrace config show
  HEADRACE_SANDBOX_MEMORY_MB=1024 headrace config show -o json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("show",))
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    add_home(parser)
    add_sandbox(parser)


def run(options: argparse.Namespace) -> int:
    resolved = resolved_of(options)
    rows = {key: (getattr(resolved.settings, key), source) for key, source in resolved.sources.items()}
    if options.output == "json":
        print(json.dumps({key: {"value": value, "source": source} for key, (value, source) in rows.items()}, indent=2))
        return 0
    width = max(map(len, rows))
    values = max(len(repr(value)) for value, _ in rows.values())
    for key, (value, source) in rows.items():
        print(f"{key:<{width}}  {value!r:<{values}}  {source}")
    return 0
