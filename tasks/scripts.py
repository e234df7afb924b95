"""Turns in the `json` dialect, as scripts of a task write them: one object a turn with `tool` and `arguments`."""

from __future__ import annotations

import json

TOOLS = ["write_file", "read_file", "run", "done"]
PROTOCOL = (
    'Each turn is one JSON object: {"tool": NAME, "arguments": {...}}. Tools: write_file(path, content) writes a text '
    "file; read_file(path) shows one; run(command) runs a shell command in the workspace; done(answer) hands in.")


def write_file(path: str, content: str) -> str:
    return _turn("write_file", path=path, content=content)


def run(command: str) -> str:
    return _turn("run", command=command)


def done(answer: str = "") -> str:
    return _turn("done", answer=answer)


def _turn(tool: str, **arguments: str) -> str:
    return json.dumps({"tool": tool, "arguments": arguments}, ensure_ascii=False)
