"""Flags that every command shares, and the settings that they lead to."""

from __future__ import annotations

import argparse
import math
import uuid

from schemas.settings import Resolved, Settings, resolve

FORMATS = ("table", "json", "jsonl", "csv")


def add_home(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--home", metavar="DIR", help="where everything lies (else HEADRACE_HOME, else ./.headrace)")
    parser.add_argument("--log", metavar="ADDRESS", help="sqlite (default) or kafka://host:port[,host:port]")


def add_sandbox(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--sandbox",
        metavar="BACKEND",
        help="bubblewrap (default), docker, or process: no isolation, for machines with neither",
    )


def add_verifiers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--verifier", action="append", metavar="FILE.py",
                        help="a file with verifiers of your own, for task kinds or names they bear; may be repeated")


def add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", choices=FORMATS, default="table", help="how to print (default: table)")


def add_reading(parser: argparse.ArgumentParser) -> None:
    add_home(parser)
    add_output(parser)
    parser.add_argument("--limit", type=natural, metavar="N", help="at most N rows")


def natural(text: str) -> int:
    """A whole number of at least 0, for argparse."""
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"not a whole number: {text!r}") from None
    if number < 0:
        raise argparse.ArgumentTypeError(f"must not be negative: {text!r}")
    return number


def positive(text: str) -> int:
    """A whole number of at least 1, for argparse."""
    if (number := natural(text)) == 0:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def temperature(text: str) -> float:
    """A number from 0, for argparse."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"not a number from 0: {text!r}")
    return number


def run_id(text: str) -> str:
    """A whole run id, for commands that write: a prefix or a typing error would begin another run."""
    try:
        return str(uuid.UUID(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"not a whole run id: {text!r} (`headrace status` lists them)") from None


def resolved_of(options: argparse.Namespace) -> Resolved:
    given = vars(options)
    flags = {"home": given.get("home"), "log": given.get("log"), "sandbox_backend": given.get("sandbox"),
             "verifiers": ",".join(given.get("verifier") or []) or None}
    return resolve(flags)


def settings_of(options: argparse.Namespace) -> Settings:
    return resolved_of(options).settings
