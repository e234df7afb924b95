"""Writes docs/events.md, docs/tables.md and docs/commands.md from the code; `--check` fails where they differ."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

os.environ["COLUMNS"] = "100"
DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))


def events() -> str:
    from schemas.enums import Disposition, Purpose, ScoreStatus, Termination, ToolStatus
    from schemas.events import PAYLOADS, fields_of

    lines = [
        "# Events",
        "",
        "Generated from `schemas/events.py`. Envelope: CloudEvents 1.0, Kafka binding, binary mode; "
        "the value is a MessagePack map with these fields. Times are microseconds UTC.",
        "",
    ]
    for payload in PAYLOADS:
        lines += [
            f"## {payload.NAME}",
            "",
            f"Type `headrace.{payload.NAME}.v{payload.VERSION}`, topic `{payload.TOPIC}`.",
            "",
        ]
        lines += ["| field | type |", "|---|---|"]
        lines += [f"| {name} | `{_type_name(kind)}` |" for name, kind in fields_of(payload)] + [""]
    lines += ["# Enumerations", ""]
    for enum in (Purpose, Termination, ToolStatus, ScoreStatus, Disposition):
        lines.append(f"* {enum.__name__}: " + ", ".join(f"`{value}`" for value in enum))
    return "\n".join(lines) + "\n"


def _type_name(kind: object) -> str:
    text = kind.__name__ if isinstance(kind, type) else str(kind)
    return text.replace("schemas.events.", "").replace("|", "or").replace("typing.", "").replace("NoneType", "None")


def tables() -> str:
    from artifacts import open_store
    from lake import open_lake
    from lake.views import PUBLIC
    from schemas.settings import Settings

    lines = ["# Tables and views", "", "Generated from `lake/views.py`. All of them in one query are one snapshot.", ""]
    with tempfile.TemporaryDirectory() as home:
        settings = Settings(home=home)
        lake = open_lake(settings, open_store(settings))
        for name in PUBLIC:
            lines += [f"## {name}", "", "| column | type |", "|---|---|"]
            described = lake.sql(f"describe {name}").to_pylist()
            lines += [f"| {row['column_name']} | {row['column_type'].lower()} |" for row in described] + [""]
    return "\n".join(lines)


def commands() -> str:
    from headrace.cli import COMMANDS, build_parser

    lines = [
        "# Commands",
        "",
        "Generated from `--help`. Exit codes: 0 done, 1 a check found something, 2 a user's mistake, 130 interrupted.",
        "",
    ]
    for name in COMMANDS:
        parser = build_parser(name)
        choices = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction)).choices
        lines += _help(f"headrace {name}", choices[name])
    return "\n".join(lines)


def _help(name: str, parser: argparse.ArgumentParser) -> list[str]:
    lines = [f"## {name}", "", "```", parser.format_help().rstrip(), "```", ""]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for sub, subparser in action.choices.items():
                lines += _help(f"{name} {sub}", subparser)
    return lines


def main() -> int:
    check = "--check" in sys.argv[1:]
    stale = []
    for name, text in {"events.md": events(), "tables.md": tables(), "commands.md": commands()}.items():
        path = DOCS / name
        if check and (not path.exists() or path.read_text() != text):
            stale.append(str(path))
        elif not check:
            path.write_text(text)
    if stale:
        print(f"out of date: {', '.join(stale)}; run `make docs`", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
