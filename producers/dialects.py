"""Dialects: how the text of a turn is read as tool calls, and how results are shown.

`line` is one command a turn: the first word is the tool, the rest its arguments, split at single spaces without any
quoting. `json` is one object `{"tool": ..., "arguments": {...}}` a turn, or an array of them. What cannot be read is
a `Malformed` result that keeps the raw text; reading never fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from schemas.errors import TaskError

LINE_SHOWN_BYTES = 64
JSON_SHOWN_BYTES = 16 << 10
"""The most that an event may carry as a preview."""


class Call(msgspec.Struct, frozen=True):
    """`raw` is the arguments as the policy wrote them."""

    tool: str
    raw: str
    arguments: Any


class Malformed(msgspec.Struct, frozen=True):
    tool: str
    raw: str
    problem: str


class Dialect(msgspec.Struct, frozen=True):
    name: str
    parse: Callable[[str], list[Call | Malformed]]
    shown_bytes: int
    explains: bool
    """Whether errors carry their reason, or only their type (for policies that read few words)."""

    def error(self, status: str, problem: str = "") -> str:
        return f"error: {status}: {problem}" if self.explains and problem else f"error: {status}"

    def cut(self, text: str) -> tuple[str, bool]:
        """What the policy is shown, and whether something was left out: head and tail, or the head of a line."""
        data = text.encode()
        if len(data) <= self.shown_bytes:
            return text, False
        if not self.explains:
            return data[:self.shown_bytes].decode(errors="ignore"), True
        mark = f"\n[... {len(data)} bytes in all ...]\n"
        half = (self.shown_bytes - len(mark)) // 2
        return data[:half].decode(errors="ignore") + mark + data[-half:].decode(errors="ignore"), True


def _parse_line(text: str) -> list[Call | Malformed]:
    line = text.strip()
    tool, _, rest = line.partition(" ")
    if not tool:
        return [Malformed("", text, "the turn is empty")]
    if "\0" in line:
        return [Malformed(tool, rest, "a zero byte cannot be passed on")]
    return [Call(tool, rest, rest.split(" ") if rest else [])]


class _Written(msgspec.Struct, forbid_unknown_fields=True):
    tool: str
    arguments: msgspec.Raw = msgspec.Raw(b"{}")


_DECODER = msgspec.json.Decoder(_Written | list[_Written])


def _parse_json(text: str) -> list[Call | Malformed]:
    try:
        written = _DECODER.decode(text)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError) as wrong:
        return [Malformed("", text, str(wrong))]
    calls = [_call(one) for one in (written if isinstance(written, list) else [written])]
    return calls or [Malformed("", text, "no call in the turn")]


def _call(written: _Written) -> Call | Malformed:
    raw = bytes(written.arguments).decode()
    try:
        return Call(written.tool, raw, msgspec.json.decode(written.arguments))
    except msgspec.MsgspecError as wrong:
        return Malformed(written.tool, raw, str(wrong))


DIALECTS = {
    "line": Dialect("line", _parse_line, LINE_SHOWN_BYTES, explains=False),
    "json": Dialect("json", _parse_json, JSON_SHOWN_BYTES, explains=True),
}


def dialect(name: str) -> Dialect:
    try:
        return DIALECTS[name]
    except KeyError:
        raise TaskError("unknown dialect", where="$.dialect", value=name,
                        hint=f"one of {', '.join(DIALECTS)}") from None
