"""The tools that policies may call: stable wrappers, each with a JSON schema, a deadline, a retry rule, and the one
command that it runs in the sandbox.

Line tools are the executables of `tasks/toolbox`, seen at `/tools`. `done` hands the work in; it runs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePosixPath
from typing import Any

import msgspec

from producers.json_schema import problem_of
from schemas.errors import TaskError
from tasks import TOOLBOX_MOUNT
from tasks.task import Task

DONE = "done"


class Command(msgspec.Struct, frozen=True):
    argv: Sequence[str]
    stdin: bytes = b""


class Denied(Exception):
    """The arguments fit the schema but ask for what a tool does not do."""


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    description: str
    schema: dict[str, Any]
    build: Callable[[Any], Command] | None = None
    """The command for arguments that fit the schema; null: nothing runs. Raises Denied."""
    deadline_s: float | None = None
    """Null: the setting `tool_deadline_s`."""
    repeatable: bool = True
    """Its effects stay in the sandbox, so it may run again in a fresh one with the workspace as it was before."""
    retries: int = 1
    """Further attempts when the sandbox broke; none where the call is not repeatable."""
    writes: bool = True
    """False: cannot change the workspace, so no snapshot is needed after it."""

    def problem(self, arguments: Any) -> str | None:
        return problem_of(arguments, self.schema)


_WORDS = {"type": "array", "items": {"type": "string"}}
_NOTHING = {"type": "array", "maxItems": 0}


def _object(required: list[str], **properties: str) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": kind} for name, kind in properties.items()},
            "required": required, "additionalProperties": False}


def _line(name: str, description: str, writes: bool = False) -> Tool:
    def build(arguments: list[str]) -> Command:
        return Command([f"{TOOLBOX_MOUNT}/{name}", *arguments])

    return Tool(name=name, description=description, schema=_WORDS, build=build, writes=writes)


def _inside(path: str) -> str:
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts or "\0" in path or not parts.name:
        raise Denied(f"path must lie in the workspace: {path!r}")
    return str(parts)


def _write_file(arguments: dict[str, Any]) -> Command:
    script = 'mkdir -p -- "$(dirname -- "$1")" && cat >"$1"'
    return Command(["/bin/sh", "-c", script, "write_file", f"./{_inside(arguments['path'])}"],
                   arguments["content"].encode(errors="replace"))


def _read_file(arguments: dict[str, Any]) -> Command:
    return Command(["/bin/cat", "--", _inside(arguments["path"])])


def _run(arguments: dict[str, Any]) -> Command:
    if "\0" in arguments["command"]:
        raise Denied("a zero byte cannot be part of a command")
    return Command(["/bin/sh", "-c", arguments["command"]])


_LINE = (
    _line("calc", "calculate with whole numbers"), _line("cat", "print a file"),
    _line("grep", "print the number after a key"), _line("write", "write a text file", writes=True),
    _line("box", "write the mesh of a box", writes=True),
    Tool(name=DONE, description="hand the work in", schema=_NOTHING, writes=False))
_JSON = (
    Tool(name="write_file", description="Write a text file of the workspace, making its folders.",
         schema=_object(["path", "content"], path="string", content="string"), build=_write_file),
    Tool(name="read_file", description="Print a file of the workspace.", schema=_object(["path"], path="string"),
         build=_read_file, writes=False),
    Tool(name="run", description="Run a shell command in the workspace and print what it prints.",
         schema=_object(["command"], command="string"), build=_run),
    Tool(name=DONE, description="Hand the work in; `answer` is the final answer where one is asked for.",
         schema=_object([], answer="string"), writes=False))
TOOLS: dict[str, dict[str, Tool]] = {
    "line": {tool.name: tool for tool in _LINE}, "json": {tool.name: tool for tool in _JSON}}


def tools_of(task: Task) -> dict[str, Tool]:
    """The tools of a task by name; all of its dialect where it names none."""
    known = TOOLS.get(task.dialect, {})
    unknown = [name for name in task.tools if name not in known]
    if unknown:
        raise TaskError("unknown tool", where=f"task {task.task_id}, $.tools", value=unknown[0],
                        hint=f"tools of dialect {task.dialect}: {', '.join(known)}")
    return {name: known[name] for name in task.tools or known}
