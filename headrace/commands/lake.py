"""`headrace lake`: the lake audited, kept in order, examined, built anew; dead letters taken up again."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.options import add_reading, settings_of
from schemas.errors import UserError

if TYPE_CHECKING:
    from eventlog.inspection import Inspector, PartitionRow
    from headrace.rooms import Rooms

EXAMPLES = """examples:
  headrace lake verify                    every promise and every row; exit 1 with what it found
  headrace lake verify --against-log      the rows against the log instead of the lake's own archive
  headrace lake doctor                    what is wrong with the files, and what to do
  headrace lake compact
  headrace lake vacuum --dry-run
  headrace lake rebuild --check           build it beside, compare, throw it away
  headrace lake redrive                   dead letters once more, after their cause was fixed
"""
_VERIFY = """examples:
  headrace lake verify
  headrace lake verify --quick            without comparing every row with its event
  headrace lake verify --against-log -o json
"""
_COMPACT = """examples:
  headrace lake compact
  headrace lake compact --wait 60         wait for another maintenance to end

Sinks and readers go on meanwhile. Not one row changes.
"""
_VACUUM = """examples:
  headrace lake vacuum --dry-run          what would be removed
  headrace lake vacuum                    files that nobody has needed for 7 days
  headrace lake vacuum --retention 12h
"""
_DOCTOR = """examples:
  headrace lake doctor
  headrace lake doctor -o jsonl

Exit 1 when something is damaged. An orphan, a dead maintenance or a kept old lake is a note: it costs disk alone.
"""
_REBUILD = """examples:
  headrace lake rebuild                   beside the old one, compared, then swapped in
  headrace lake rebuild --check           exit 1 unless the rows are the same; the lake stays as it is
  headrace lake rebuild --undo            back to the lake of before
  headrace lake rebuild --discard-old     remove the lakes of before

A rebuild that was interrupted goes on where it stood. Sinks and readers go on meanwhile.
"""
_REDRIVE = """examples:
  headrace lake redrive --dry-run         which dead letters would be accepted now
  headrace lake redrive

Exit 1 if a letter can only become a row by `headrace lake rebuild`.
"""
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    verify = _action(actions, "verify", "audit the lake", _VERIFY)
    verify.add_argument("--against-log", action="store_true", help="compare every row with the log")
    verify.add_argument("--quick", action="store_true", help="promises only, not every row")
    _waiting(_action(actions, "compact", "merge small files, write checkpoints", _COMPACT))
    vacuum = _waiting(_action(actions, "vacuum", "remove files that nobody needs any more", _VACUUM))
    vacuum.add_argument("--retention", type=duration, default=7 * 86400.0, metavar="TIME",
                        help="keep what is younger: 7d (default), 12h, 90m, ...; at least an hour")
    vacuum.add_argument("--alone", action="store_true", help="nothing else reads or writes now: any retention will do")
    vacuum.add_argument("--dry-run", action="store_true", help="say what would be removed")
    _action(actions, "doctor", "what is wrong with the files, and what to do", _DOCTOR)
    rebuild = _waiting(_action(actions, "rebuild", "build the lake anew from the log", _REBUILD))
    rebuild.add_argument("--check", action="store_true", help="compare only: exit 1 unless the rows are the same")
    rebuild.add_argument("--accept-loss", action="store_true",
                         help="go on although the log is damaged: what was changed becomes dead letters, what is gone "
                              "stays missing")
    rebuild.add_argument("--undo", action="store_true", help="make the lake of before the lake again")
    rebuild.add_argument("--discard-old", action="store_true", help="remove the lakes of before")
    rebuild.add_argument("--dry-run", action="store_true", help="with --discard-old: say what would be removed")
    redrive = _waiting(_action(actions, "redrive", "dead letters become rows where their cause is gone", _REDRIVE))
    redrive.add_argument("--dry-run", action="store_true", help="say what would become a row")


def _action(actions: Any, name: str, summary: str, examples: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(
        name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.", epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    add_reading(parser)
    return parser


def _waiting(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("--wait", type=duration, default=0.0, metavar="TIME",
                        help="how long to wait for another maintenance (default: leave at once)")
    return parser


def duration(text: str) -> float:
    """Seconds of `7d`, `12h`, `90m`, `30s` or `30`, for argparse."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    if not found:
        raise argparse.ArgumentTypeError(f"not a time: {text!r} (write 7d, 12h, 90m or 30s)")
    return float(found[1]) * _UNITS[found[2] or "s"]


def run(options: argparse.Namespace) -> int:
    from headrace.rooms import Rooms

    actions = {"verify": _verify, "compact": _compact, "vacuum": _vacuum, "doctor": _doctor, "rebuild": _rebuild,
               "redrive": _redrive}
    with Rooms(settings_of(options)) as rooms:
        return actions[options.action](rooms.require(), options)


def _show(options: argparse.Namespace, names: Sequence[str], rows: Sequence[Sequence[Any]], summary: str) -> None:
    """Rows in the format that was asked for; for people an empty table is left out and a sentence follows."""
    from headrace.output import in_line, plain, print_rows

    shown = rows if options.limit is None else rows[:options.limit]
    if shown or options.output != "table":
        print_rows(names, [[plain(value) for value in row] for row in shown], options.output)
    if options.output == "table":
        print(in_line(summary))


def _verify(rooms: Rooms, options: argparse.Namespace) -> int:
    from headrace.progress import counting
    from replay.audit import differences
    from schemas.errors import LakeError, LogDamagedError

    lake, problems = rooms.lake, list[str]()
    try:
        total = sum(lake.positions().values())
        problems += lake.verify(contiguous=False)
        problems += _gaps(rooms)
        if not options.quick or options.against_log:
            with counting("offsets", total) as advance, _looking_at(rooms, options.against_log) as log:
                if log and lake.identity not in ("", found := log.about()["identity"]):
                    problems.append(f"the lake is a copy of log {lake.identity}, and this home's log is "
                                    f"{found}: name the --home or --log that belong together")
                problems += differences(lake, rooms.artifacts, log, advance)
    except (LakeError, LogDamagedError) as wrong:
        problems.append(f"{wrong}; {wrong.hint}")
    problems = list(dict.fromkeys(problems))  # The same damage stops both audits.
    against = "the log" if options.against_log else "their promises" if options.quick else "the archive"
    _show(options, ["problem"], [[problem] for problem in problems],
          f"{len(problems)} problems found" if problems else f"sound: {total} offsets agree with {against}")
    return 1 if problems else 0


def _gaps(rooms: Rooms) -> list[str]:
    """Offsets that are in no table. The log is asked what they are, if it is there."""
    from lake.gaps import gaps, lost
    from schemas.errors import HeadraceError, LakeError

    try:
        found = gaps(rooms.lake)
    except LakeError:  # The audit tells it.
        return []
    if not found:
        return []
    try:
        with _looking_at(rooms) as log:
            assert log is not None
            if rooms.lake.identity == log.about()["identity"]:
                return [f"{gap}: {how}" for gap, how in lost(found, log)]
            why = "this home's log is another"
    except HeadraceError as wrong:
        why = str(wrong)
    return [f"{gap}: lost, or marks of transactions; the log cannot tell ({why})" for gap in found]


@contextmanager
def _looking_at(rooms: Rooms, wanted: bool = True) -> Iterator[Inspector | None]:
    """The log to be read and checked."""
    from eventlog.inspection import inspect_log

    if wanted:
        with closing(inspect_log(rooms.settings)) as log:
            yield log
    else:
        yield None


def _compact(rooms: Rooms, options: argparse.Namespace) -> int:
    from headrace.progress import counting

    with counting("tables", None) as advance:
        merged = rooms.lake.compact(options.wait, lambda table: advance(1))
    _show(options, ["table", "files_merged"], [[table, count] for table, count in merged.items() if count],
          f"{sum(merged.values())} files merged, {len(merged)} checkpoints written")
    return 0


def _vacuum(rooms: Rooms, options: argparse.Namespace) -> int:
    from headrace.progress import counting
    from lake.vacuum import vacuum

    with counting("tables", None) as advance:
        files = vacuum(rooms.lake, options.retention, dry_run=options.dry_run, alone=options.alone,
                       wait_s=options.wait, advance=lambda table: advance(1))
    _show_files(options, files)
    return 0


def _show_files(options: argparse.Namespace, files: Sequence[Any]) -> None:
    from datetime import UTC, datetime

    rows = [[file.table, file.file, file.size_bytes, datetime.fromtimestamp(file.modified / 1e6, UTC), file.why]
            for file in files]
    size = sum(file.size_bytes for file in files)
    _show(options, ["table", "file", "bytes", "modified", "why"], rows,
          f"{len(files)} files, {size} bytes {'would be' if options.dry_run else 'were'} removed")


def _doctor(rooms: Rooms, options: argparse.Namespace) -> int:
    from headrace.progress import counting
    from lake.doctor import examine
    from lake.examination import Finding
    from schemas.errors import HeadraceError, LogDamagedError

    identity, unseen = "", []
    rows: list[PartitionRow] = []
    if rooms.settings.log != "sqlite" or (Path(rooms.settings.home) / "log.db").exists():
        try:
            with _looking_at(rooms) as log:
                assert log is not None
                identity = log.about()["identity"]
                rows = log.partitions()
        except HeadraceError as wrong:
            severity: Any = "damage" if isinstance(wrong, LogDamagedError) else "note"
            unseen.append(Finding(severity, rooms.settings.log, f"the log was not looked at: {wrong}", wrong.hint))
    with counting("tables", None) as advance:
        findings = unseen + examine(
            rooms.lake, identity, {(row.topic, row.partition): row.end for row in rows}, lambda table: advance(1),
            {(row.topic, row.partition): row.start for row in rows})
    damages = sum(finding.severity == "damage" for finding in findings)
    _show(options, list(Finding._fields), findings,
          f"{damages} damages, {len(findings) - damages} notes" if findings else "the lake is well")
    return 1 if damages else 0


def _rebuild(rooms: Rooms, options: argparse.Namespace) -> int:
    from headrace.progress import counting
    from replay import rebuild
    from schemas.topics import TOPICS

    if options.undo + options.discard_old + options.check > 1:
        raise UserError("one of --check, --undo and --discard-old at a time", where="headrace lake rebuild")
    if options.dry_run and not options.discard_old:
        raise UserError("--dry-run goes with --discard-old", where="headrace lake rebuild",
                        hint="`headrace lake rebuild --check` builds and compares only")
    if options.undo:
        where = rebuild.undo(rooms.lake, options.wait)
        _show(options, ["lake"], [[where]], "is the lake again")
        return 0
    if options.discard_old:
        _show_files(options, rebuild.discard_old(rooms.lake, dry_run=options.dry_run, wait_s=options.wait))
        return 0
    with counting("events", sum(rooms.log.ends(TOPICS).values())) as advance, _looking_at(rooms) as log:
        assert log is not None
        reports = rebuild.rebuild(rooms.lake, rooms.log, log, rooms.artifacts, check=options.check,
                                  accept_loss=options.accept_loss, wait_s=options.wait, advance=advance)
    differing = sum(not report.same for report in reports)
    _show(options, ["table", "rows_before", "rows", "hash", "same"], [
        [report.table, report.before.rows if report.before else None, report.after.rows, report.after.hash,
         report.same] for report in reports],
        f"{len(reports) - differing} of {len(reports)} tables are the same"
        + ("" if options.check else "; the lake of before is kept (--undo, --discard-old)"))
    return 1 if options.check and differing else 0


def _redrive(rooms: Rooms, options: argparse.Namespace) -> int:
    from headrace.progress import counting
    from replay.redrive import redrive

    with counting("dead letters", None) as advance, _looking_at(rooms) as log:
        assert log is not None
        outcomes = redrive(rooms.lake, log, rooms.artifacts, dry_run=options.dry_run, wait_s=options.wait,
                           advance=advance)
    counts = {result: sum(one.result == result for one in outcomes)
              for result in ("redriven", "stays", "needs a rebuild")}
    _show(options, ["topic", "partition", "offset", "result", "reason"],
          [[*one.position, one.result, one.reason] for one in outcomes],
          f"{counts['redriven']} dead letters {'would be' if options.dry_run else 'were'} redriven, {counts['stays']} "
          f"stay, {counts['needs a rebuild']} need a rebuild")
    return 1 if counts["needs a rebuild"] else 0
