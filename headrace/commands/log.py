"""`headrace log`: the topics, what is in them, whether it is whole, and the events as they come."""

from __future__ import annotations

import argparse
import datetime
import difflib
import itertools
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from headrace.options import add_reading, natural, positive, settings_of
from schemas.errors import LogDamagedError, UserError
from schemas.topics import TOPICS

if TYPE_CHECKING:
    from eventlog.audit import Audit
    from schemas.envelope import Record

EXAMPLES = """examples:
  headrace log create --partitions 8 --log kafka://localhost:9092
  headrace log describe
  headrace log verify
  headrace log tail --follow
  headrace log tail --episode 0190b2c4 --from-start
  headrace log tail --topic scores --since 10m -o jsonl
"""
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    create = actions.add_parser("create", help="make the topics that are not there; what is there stays as it is")
    create.add_argument("--partitions", type=positive, metavar="N", help="of requests, trajectories and scores")
    create.add_argument(
        "--retention-days", type=positive, metavar="DAYS", help="Kafka, topics made now; default: keep everything"
    )
    describe = actions.add_parser("describe", help="topics, ends, sizes, retention, identity, groups and their lag")
    verify = actions.add_parser("verify", help="audit every record; exits 1 with what it found")
    tail = actions.add_parser("tail", help="the last events, one a line, and those that come")
    tail.add_argument("--topic", choices=TOPICS, action="append", help="only this topic; may be repeated")
    tail.add_argument("--episode", default="", metavar="ID", help="only this episode (id or prefix)")
    tail.add_argument("--type", default="", metavar="NAME", help="only this type, e.g. turn.generated")
    begin = tail.add_mutually_exclusive_group()
    begin.add_argument("--from-start", action="store_true", help="all that is there")
    begin.add_argument("--since", type=moment, metavar="TIME", help="e.g. 10m, 2h, 2026-05-01T12:00Z")
    begin.add_argument("-n", type=natural, default=10, metavar="N", dest="last", help="the last N (default: 10)")
    tail.add_argument("-f", "--follow", action="store_true", help="go on with what comes, until Ctrl-C")
    for action in (create, describe, verify, tail):
        add_reading(action)


def run(options: argparse.Namespace) -> int:
    return {"create": _create, "describe": _describe, "verify": _verify, "tail": _tail}[options.action](options)


def moment(text: str) -> int:
    """Microseconds UTC of `10m` ago or of an ISO time, for argparse."""
    from schemas.ids import now_us

    if text[-1:] in _UNITS and text[:-1].replace(".", "", 1).isdigit():
        return now_us() - int(float(text[:-1]) * _UNITS[text[-1]] * 1e6)
    try:
        at = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"not a time: {text!r} (10m, 2h, 3d or 2026-05-01T12:00Z)") from None
    return int((at if at.tzinfo else at.replace(tzinfo=datetime.UTC)).timestamp() * 1e6)


def _create(options: argparse.Namespace) -> int:
    from eventlog.creation import create
    from headrace.output import print_rows
    from headrace.rooms import Rooms

    settings = settings_of(options)
    Rooms(settings).make_home()
    topics = create(settings, options.partitions, options.retention_days)
    rows = [[*one.topic, "made" if one.made else "was there"] for one in topics]
    print_rows(["topic", "partitions", "retention", "state"], rows[: options.limit], options.output)
    other = [one.topic for one in topics if one.topic.partitions != one.wanted_partitions]
    for topic in other:
        print(f"{topic.topic} has {topic.partitions} partitions and keeps them: an episode's events must stay together",
              file=sys.stderr)
    return 1 if other and options.partitions else 0


def _describe(options: argparse.Namespace) -> int:
    import pyarrow as pa

    from eventlog.inspection import GroupRow, PartitionRow, TopicRow, inspect_log
    from headrace.output import print_tables

    inspector = inspect_log(settings_of(options))
    try:
        about = [{"name": name, "value": value} for name, value in inspector.about().items()]
        tables = {
            "log": pa.Table.from_pylist(about),
            "topics": _table(TopicRow._fields, inspector.topics()),
            "partitions": _table(PartitionRow._fields, inspector.partitions()),
            "groups": _table(GroupRow._fields, inspector.groups()),
        }
    finally:
        inspector.close()
    print_tables(tables, options.output, options.limit)
    return 0


def _verify(options: argparse.Namespace) -> int:
    from eventlog.audit import Audit
    from eventlog.inspection import inspect_log
    from headrace.output import safe
    from headrace.progress import counting

    try:
        inspector = inspect_log(settings_of(options))
    except LogDamagedError as wrong:
        print(safe(wrong.paragraph()), file=sys.stderr)
        return 1
    try:
        audit = Audit(inspector)
        with counting("records", sum(row.end - row.start for row in inspector.partitions())) as step:
            for count in audit.run():
                step(count)
    finally:
        inspector.close()
    _print_audit(audit, options)
    return 1 if audit.faults else 0


def _print_audit(audit: Audit, options: argparse.Namespace) -> None:
    from headrace.output import counted, print_tables

    findings = [(kind, "fault" if fault else "note", count) for (kind, fault), count in sorted(audit.counts.items())]
    examples = [(one.kind, *(one.position or (None, None, None)), one.episode, one.detail)
                for one in sorted(audit.examples, key=lambda one: (not one.fault, one.kind))]
    tables = {
        "partitions": _table(("topic", "partition", "start", "end", "records", "episodes", "fenced"), [
            (*one.row[:4], one.events, one.episodes, one.fenced) for one in audit.partitions]),
        "findings": _table(("finding", "verdict", "count"), findings),
        "examples": _table(("finding", "topic", "partition", "offset", "episode", "detail"), examples),
    }
    told = {name: table for name, table in tables.items() if table.num_rows or options.output != "table"}
    print_tables(told, options.output, options.limit)
    if options.output == "table":
        events = sum(one.events for one in audit.partitions)
        verdict = counted(audit.faults, "fault") if audit.faults else "no fault"
        print(f"\n{verdict} in {counted(events, 'record')} of {counted(len(audit.partitions), 'partition')}")


def _table(names: tuple[str, ...], rows: list[Any]) -> Any:
    import pyarrow as pa

    return pa.table({name: [row[at] for row in rows] for at, name in enumerate(names)})


def _tail(options: argparse.Namespace) -> int:
    from eventlog.tail import Wanted, tail
    from headrace.event_lines import COLUMNS, line_of, row_of
    from headrace.output import print_rows

    if options.follow and options.output == "json":
        raise UserError("json is one document, which --follow never ends", hint="use `-o jsonl`")
    wanted = Wanted(options.topic or TOPICS, options.episode, options.type, options.since or 0)
    last = None if options.from_start or options.since is not None else options.last
    records = tail(settings_of(options), wanted, last, options.follow, sys.stdout.flush)
    found = _first(records, options.limit)
    shown = list(itertools.islice(found, 1))
    if not shown and (options.type or options.episode):
        print(_nothing(options.type), file=sys.stderr)
    if options.output == "table":
        for record in itertools.chain(shown, found):
            print(line_of(record, sys.stdout))
    else:
        print_rows(COLUMNS, map(row_of, itertools.chain(shown, found)), options.output)
    sys.stdout.flush()
    return 0


def _nothing(name: str) -> str:
    """An empty answer to a misspelt type would lie. One that is not ours may be in the log all the same."""
    from schemas.events import PAYLOADS

    known = [payload.NAME for payload in PAYLOADS]
    if not name or name in known:
        return "no such event"
    close = difflib.get_close_matches(name, known, n=1)
    return f"no such event; did you mean `{close[0]}`?" if close else f"no such event; types: {', '.join(known)}"


def _first(records: Iterator[Record], limit: int | None) -> Iterator[Record]:
    if limit == 0:
        return
    for number, record in enumerate(records, 1):
        yield record
        if number == limit:
            return
