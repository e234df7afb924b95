"""`headrace episodes`: list and search episodes, show one, open a shell in its workspace."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from headrace.options import add_home, add_reading, add_sandbox, settings_of

if TYPE_CHECKING:
    from headrace.rooms import Rooms
    from schemas.events import ToolReturned
    from schemas.transcript import Call, Transcript, Turn

EXAMPLES = """examples:
  headrace episodes ls --kind coding --limit 5
  headrace episodes ls --failed
  headrace episodes ls --failed --why "timed out"        searches reasons and evidence
  headrace episodes show 0190b2c4        a prefix of the id is enough
  headrace episodes open 0190b2c4        a shell in a copy of its workspace
  headrace episodes open 0190b2c4 -c "ls -la"
"""
_NEWEST = 50
_LONGEST_EVIDENCE = 8000
_WHOLE = 36


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    ls = actions.add_parser("ls", help=f"newest first; {_NEWEST} of them, or --limit N")
    ls.add_argument("--kind", default="", help="only of this task kind")
    ls.add_argument("--run", dest="run_id", default="", metavar="ID", help="only of this run (id or prefix)")
    ls.add_argument("--failed", action="store_true", help="only where the reward is below 1 or missing")
    ls.add_argument("--why", default="", metavar="TEXT",
                    help="only where the reason or the evidence of the verdict says TEXT")
    add_reading(ls)
    show = actions.add_parser("show", help="one trajectory as turns, calls, scores")
    show.add_argument("id", help="the episode's id or a prefix of it")
    add_reading(show)
    opened = actions.add_parser("open", help="a shell in a copy of its workspace, thrown away at the end")
    opened.add_argument("id", help="the episode's id or a prefix of it")
    opened.add_argument("-c", dest="run_command", metavar="COMMAND", help="run this and leave with its exit code")
    add_home(opened)
    add_sandbox(opened)


def run(options: argparse.Namespace) -> int:
    from headrace.rooms import Rooms

    with Rooms(settings_of(options)) as rooms:
        rooms.require()
        return {"ls": _ls, "show": _show, "open": _open}[options.action](rooms, options)


def _ls(rooms: Rooms, options: argparse.Namespace) -> int:
    import sys

    from headrace.lookup import full_run_id, known
    from headrace.output import print_table
    from headrace.searching import episodes

    kind = known(rooms.lake, "requests", "kind", options.kind, "kind of task")
    parameters = {"kind": kind, "run": full_run_id(rooms.lake, options.run_id), "failed": options.failed}
    limit = _NEWEST if options.limit is None else options.limit
    found = episodes(rooms, parameters, options.why, limit + 1)
    print_table(found, options.output, limit)
    if options.limit is None and found.num_rows > limit:
        print(f"the newest {limit}; there are more: --limit N", file=sys.stderr)
    return 0


def _transcript(rooms: Rooms, prefix: str) -> Transcript:
    """By the whole id also before the sink has written anything of it."""
    from headrace.lookup import full_id
    from headrace.reader import transcript_now

    if len(prefix) == _WHOLE and (found := transcript_now(rooms, prefix)).started:
        return found
    known = full_id(rooms.lake, "requests", "episode_id", prefix, "episode", "headrace episodes ls")
    return transcript_now(rooms, known)


def _open(rooms: Rooms, options: argparse.Namespace) -> int:
    from headrace.opening import open_workspace

    return open_workspace(rooms, _transcript(rooms, options.id), options.run_command)


def _show(rooms: Rooms, options: argparse.Namespace) -> int:
    import sys

    import msgspec

    from headrace.output import plain, print_table, safe

    transcript = _transcript(rooms, options.id)
    scores = rooms.lake.sql(
        "select verifier, status, reward, components, cause, scored_at, score_id, evidence from scores "
        "where episode_id = $id order by scored_at",
        parameters={"id": transcript.episode_id},
    )
    if options.output in ("json", "jsonl"):
        document = {"episode": msgspec.to_builtins(transcript), "scores": [plain(row) for row in scores.to_pylist()]}
        text = msgspec.json.encode(document).decode()
        print(safe(text) if sys.stdout.isatty() else text)
        return 0
    _print_transcript(transcript)
    print("\nscores")
    print_table(scores.drop_columns(["evidence"]), "table")
    evidence = scores.column("evidence").to_pylist()
    if evidence and evidence[-1]:
        print("\nevidence of the newest score")
        _print_evidence(rooms.artifacts.get(evidence[-1]))
    return 0


def _print_evidence(data: bytes) -> None:
    import json

    from headrace.output import safe

    print(_indent(safe(json.dumps(json.loads(data), indent=2, ensure_ascii=False))[:_LONGEST_EVIDENCE]))


def _print_transcript(transcript: Transcript) -> None:
    from headrace.output import in_line

    started, finished = transcript.started, transcript.finished
    print(f"episode {transcript.episode_id}")
    if started:
        print(
            in_line(
                f"task {started.task_id} · {started.kind} · {started.purpose} · policy {started.policy} · "
                f"sandbox {started.sandbox.backend} · attempt {transcript.attempt}"
            )
        )
    for resumed in transcript.resumes:
        restart = " (restart)" if resumed.restart else ""
        print(f"resumed from event {resumed.from_sequence}: {in_line(resumed.reason)}{restart}")
    for turn in transcript.turns:
        _print_turn(turn)
    if finished:
        ending = " ".join(filter(None, [finished.termination, finished.failure_kind]))
        print(f"\nfinished: {in_line(ending)}")
        print("no answer" if finished.answer is None else f"answer: {finished.answer!r}")
        print(f"workspace {finished.workspace or 'as the task gave it'}" if finished.submission else "no submission")
    else:
        print("\nnot finished yet")


def _print_turn(turn: Turn) -> None:
    from headrace.output import in_line, safe

    generated = turn.generated
    versions = ",".join(str(version) for version, _ in generated.versions) or "scripted"
    print(
        f"\nturn {generated.turn}  {len(generated.generated) // 4} tokens · weights {versions} · "
        f"{in_line(generated.finish_reason)} · {(generated.finished_at - generated.started_at) / 1e3:.1f} ms"
    )
    print(_indent(safe(generated.text)))
    for call in turn.calls:
        _print_call(call)


def _print_call(call: Call) -> None:
    from headrace.output import in_line, safe

    returned = call.returned
    outcome = "no return yet" if returned is None else _outcome(returned)
    print(f"  > {in_line(call.called.tool)} {in_line(call.called.arguments)[:200]}   [{in_line(outcome)}]")
    if returned is not None and returned.output:
        print(_indent(safe(returned.output), "    "))


def _outcome(returned: ToolReturned) -> str:
    ended = "" if returned.exit_code is None else f"exit {returned.exit_code} · "
    return f"{returned.status} · {ended}{returned.duration_s * 1e3:.1f} ms"


def _indent(text: str, by: str = "  ") -> str:
    return "\n".join(by + line for line in text.splitlines())
