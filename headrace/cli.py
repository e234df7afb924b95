"""The command line. Parsing is here; each noun has its module in `headrace.commands`, which imports what it needs
only when it runs, so that `headrace --help` starts at once.

Exit codes: 0 done, 1 a check found something, 2 a user's mistake, 130 interrupted.
"""

from __future__ import annotations

import argparse
import difflib
import errno
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

from headrace import __version__, lifeline
from schemas.errors import HeadraceError, UserError

COMMANDS = {
    "demo": "the whole loop: tasks, rollouts, verdicts, lake, batches, better weights",
    "run": "request, produce, verify and sink one task set until all is scored",
    "request": "write requests; services pick them up",
    "produce": "service: run requested episodes",
    "verify": "service: score finished episodes",
    "sink": "service: write the log into the lake, exactly once",
    "learn": "service: train on sealed batches, publish weights",
    "tasks": "import task sets, list tasks",
    "episodes": "list and search episodes, show one, open a shell in its workspace",
    "scores": "list scores",
    "batches": "list, show and rebuild sealed batches",
    "replay": "score stored submissions again",
    "log": "make, describe, verify and follow the log",
    "sql": "query the lake",
    "lake": "audit, compact, clean, examine and rebuild the lake; take up dead letters again",
    "status": "what is in this home and how far each reader is",
    "doctor": "what this machine can run, and how to get what is missing",
    "config": "show every setting and where it came from",
}
_EPILOG = """examples:
  headrace demo
  headrace sql "select kind, count(*), avg(reward) from episodes join current_scores using (episode_id) group by 1"
  headrace episodes ls --limit 5
  headrace run --tasks coding --policy scripted:reference
"""


class _Parser(argparse.ArgumentParser):
    """An error is one paragraph with a suggestion, not a usage dump; flags are written out in full."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{**options, "allow_abbrev": False})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """The command that was given something unknown says so itself, for it knows what was meant."""
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            raise UserError(f"unrecognized arguments: {' '.join(unknown)}", where=self.prog,
                            hint=self._meant(unknown[0]))
        return options, unknown

    def _meant(self, unknown: str) -> str:
        if not unknown.startswith("-"):
            return "put quotes around what belongs together, a query for example"
        close = difflib.get_close_matches(unknown.split("=")[0], self._option_string_actions, n=1)
        return f"did you mean `{close[0]}`?" if close else f"see `{self.prog} --help`"

    def error(self, message: str) -> None:  # type: ignore[override]
        raise UserError(message, where=self.prog, hint=f"see `{self.prog} --help`")


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The parser. With `only`, arguments of that command alone are built: that keeps the start fast."""
    parser = _Parser(
        prog="headrace",
        description="The event-sourced data platform for agent trajectories.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"headrace {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name, summary in COMMANDS.items():
        if only in (None, name):
            module = importlib.import_module(f"headrace.commands.{name}")
            sub = subparsers.add_parser(
                name,
                help=summary,
                description=f"{summary[0].upper()}{summary[1:]}.",
                epilog=module.EXAMPLES,
                formatter_class=argparse.RawDescriptionHelpFormatter,
            )
            module.add_arguments(sub)
        else:
            subparsers.add_parser(name, help=summary)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    lifeline.attach()
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if sys.stdout is None:  # It was closed when the program began.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    try:
        result = _dispatch(arguments)
        sys.stdout.flush()
        return result
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except HeadraceError as error:
        return _tell(error)
    except PermissionError as error:
        return _tell(UserError("permission denied", where=str(error.filename), hint="choose a writable --home"))
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # What it still holds goes nowhere.
        return _tell(UserError("disk is full", where=str(error.filename or "standard output"), hint="free space"))


def _tell(error: HeadraceError) -> int:
    from headrace.output import safe

    print(safe(error.paragraph()), file=sys.stderr)  # It may quote what an agent wrote.
    return error.exit_code


def _command_first(arguments: list[str]) -> list[str]:
    """`headrace --home DIR sql ...` means `headrace sql --home DIR ...`."""
    leading = 0
    while leading < len(arguments) and arguments[leading].split("=")[0] in ("--home", "--log"):
        leading += 1 if "=" in arguments[leading] else 2
    return arguments[leading : leading + 1] + arguments[:leading] + arguments[leading + 1 :]


def _dispatch(arguments: list[str]) -> int:
    arguments = _command_first(arguments)
    command = next((word for word in arguments if not word.startswith("-")), None)
    if command is not None and command not in COMMANDS:
        close = difflib.get_close_matches(command, COMMANDS, n=1)
        hint = f"did you mean `headrace {close[0]}`?" if close else "`headrace --help` lists the commands"
        raise UserError("unknown command", value=command, hint=hint)
    parser = build_parser(command or "-")
    if command is None and not arguments:
        parser.print_help()
        return 0
    options = parser.parse_args(arguments)
    module = importlib.import_module(f"headrace.commands.{options.command}")
    result = module.run(options)
    return int(result or 0)
