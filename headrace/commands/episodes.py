"""`headrace episodes`: list episodes, show one as turns, calls and scores."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from headrace.options import add_reading, settings_of

if TYPE_CHECKING:
    from headrace.rooms import Rooms
    from schemas.transcript import Call, Transcript, Turn

EXAMPLES = """examples:
  headrace episodes ls --kind coding --limit 5
  headrace episodes ls --failed
  headrace episodes show 0190b2c4        a prefix of the id is enough
"""
_LONGEST_EVIDENCE = 8000
_LIST = """
select e.episode_id, e.kind, e.purpose, e.task_id, e.policy, e.termination, e.turns, e.tool_calls,
       s.status, s.reward, e.finished_at
from episodes e left join current_scores s using (episode_id)
where ($kind = '' or e.kind = $kind) and ($run = '' or e.run_id = $run)
  and (not $failed or s.reward is null or s.reward < 1)
order by e.finished_at desc, e.episode_id
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    ls = actions.add_parser("ls", help="newest first")
    ls.add_argument("--kind", default="", help="only of this task kind")
    ls.add_argument("--run", dest="run_id", default="", metavar="ID", help="only of this run (id or prefix)")
    ls.add_argument("--failed", action="store_true", help="only where the reward is below 1 or missing")
    add_reading(ls)
    show = actions.add_parser("show", help="one trajectory as turns, calls, scores")
    show.add_argument("id", help="the episode's id or a prefix of it")
    add_reading(show)


def run(options: argparse.Namespace) -> int:
    from headrace.rooms import Rooms

    with Rooms(settings_of(options)) as rooms:
        rooms.require()
        return _ls(rooms, options) if options.action == "ls" else _show(rooms, options)


def _ls(rooms: Rooms, options: argparse.Namespace) -> int:
    from headrace.lookup import full_run_id, known
    from headrace.output import print_table

    kind = known(rooms.lake, "requests", "kind", options.kind, "kind of task")
    parameters = {"kind": kind, "run": full_run_id(rooms.lake, options.run_id), "failed": options.failed}
    limit = 50 if options.limit is None else options.limit
    print_table(rooms.lake.sql(_LIST, parameters=parameters), options.output, limit)
    return 0


def _show(rooms: Rooms, options: argparse.Namespace) -> int:
    import sys

    import msgspec

    from headrace.lookup import full_id
    from headrace.output import plain, print_table, safe
    from lake.history import history
    from schemas.transcript import transcript_of

    episode_id = full_id(rooms.lake, "requests", "episode_id", options.id, "episode", "headrace episodes ls")
    transcript = transcript_of(episode_id, history(rooms.lake, [episode_id]).get(episode_id, []))
    scores = rooms.lake.sql(
        "select verifier, status, reward, components, cause, scored_at, score_id, evidence from scores "
        "where episode_id = $id order by scored_at",
        parameters={"id": episode_id},
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
        print(f"answer: {finished.answer!r}\nworkspace {finished.workspace}")
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
    outcome = (
        "no return yet"
        if returned is None
        else f"{returned.status} · exit {returned.exit_code} · {returned.duration_s * 1e3:.1f} ms"
    )
    print(f"  > {in_line(call.called.tool)} {in_line(call.called.arguments)[:200]}   [{in_line(outcome)}]")
    if returned is not None and returned.output:
        print(_indent(safe(returned.output), "    "))


def _indent(text: str, by: str = "  ") -> str:
    return "\n".join(by + line for line in text.splitlines())
