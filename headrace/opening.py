"""A shell in the workspace of an episode: a fresh sandbox with what the episode left, thrown away at the end."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from schemas.errors import NotFoundError

if TYPE_CHECKING:
    from headrace.rooms import Rooms
    from sandboxes.sandbox import ExecResult, Sandbox
    from schemas.transcript import Transcript

_DEADLINE_S = 3600.0
_LEASE_S = 24 * 3600.0
INTERRUPTED = 130


def open_workspace(rooms: Rooms, transcript: Transcript, command: str | None) -> int:
    """Run `command`, or what is typed; the exit code of the last one."""
    sandbox = _sandbox(rooms, transcript)
    try:
        if command is not None:
            return _show(sandbox.session("shell").run(command, deadline_s=_DEADLINE_S))
        return _talk(sandbox, transcript.episode_id)
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        sandbox.close()


def _sandbox(rooms: Rooms, transcript: Transcript) -> Sandbox:
    from sandboxes.sandbox import Limits, SandboxSpec
    from sandboxes.wanted import spec_for
    from tasks import TOOLBOX_MOUNT, toolbox_path
    from tasks.task import load_task

    if transcript.started is None:
        raise NotFoundError("this episode has no workspace: it never started", value=transcript.episode_id)
    workspace = (transcript.finished and transcript.finished.workspace) or transcript.workspace
    digest = transcript.started.task_digest
    task = load_task(digest, rooms.artifacts) if digest else None
    limits, owner = Limits(output_kb=1024), f"open:{transcript.episode_id}"
    readonly = {TOOLBOX_MOUNT: toolbox_path()}
    if task is None:
        return rooms.backend.acquire(SandboxSpec(
            workspace=workspace, readonly=readonly, limits=limits, owner=owner, lease_s=_LEASE_S))
    return rooms.backend.acquire(spec_for(
        task, workspace, readonly=readonly, limits=limits, owner=owner, lease_s=_LEASE_S, network="none"))


def _talk(sandbox: Sandbox, episode_id: str) -> int:
    shell, code = sandbox.session("shell"), 0
    terminal = sys.stdin.isatty()
    if terminal:
        import readline  # noqa: F401 - gives `input` a history and editing

        print(f"a copy of the workspace of {episode_id}, without network; `exit` leaves, and changes are gone then",
              file=sys.stderr)
    for line in _lines(terminal):
        lives = shell.lives
        code = _show(shell.run(line, deadline_s=_DEADLINE_S))
        if terminal and line.split()[:1] in (["exit"], ["logout"]):
            break
        if terminal and lives and shell.lives > lives:
            print("(a new shell: the last one had ended)", file=sys.stderr)
    return code


def _lines(terminal: bool) -> Iterator[str]:
    if not terminal:
        yield sys.stdin.read()
        return
    while True:
        try:
            yield input("workspace $ ")
        except EOFError:
            print(file=sys.stderr)
            return


def _show(result: ExecResult) -> int:
    """What came out, made safe for a terminal."""
    from headrace.output import safe

    for data, stream in ((result.stdout, sys.stdout), (result.stderr, sys.stderr)):
        text = data.decode(errors="replace")
        stream.write(safe(text.replace("\t", "    ")) if stream.isatty() else text)
        stream.flush()
    told = [name for name in ("timed_out", "oom", "output_limit", "truncated") if getattr(result, name)]
    if told:
        print(f"({', '.join(told)}; {result.stdout_bytes + result.stderr_bytes} bytes in all)", file=sys.stderr)
    return result.exit_code if result.exit_code is not None else 1
