"""Positions of parts of a Python source in its bytes, and edits that leave every line where it was."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple


class Edit(NamedTuple):
    start: int
    end: int
    text: bytes


def edited(source: bytes, edits: Sequence[Edit]) -> bytes:
    """Edits do not overlap."""
    for edit in sorted(edits, reverse=True):
        source = source[:edit.start] + edit.text + source[edit.end:]
    return source


class Source:
    """A module in UTF-8 without carriage returns and form feeds, which would shift its lines."""

    def __init__(self, data: bytes, tree: ast.Module) -> None:
        self.data, self.tree = data, tree
        self._starts: list[int] = [0, *itertools.accumulate(len(line) for line in data.splitlines(keepends=True))]

    def start(self, node: Any) -> int:
        return self._starts[int(node.lineno) - 1] + int(node.col_offset)

    def end(self, node: Any) -> int:
        return self._starts[int(node.end_lineno) - 1] + int(node.end_col_offset)

    def part(self, node: ast.AST) -> bytes:
        return self.data[self.start(node):self.end(node)]

    def text(self, node: ast.AST) -> str:
        return self.part(node).decode()

    def instead(self, node: ast.AST, text: bytes = b"None") -> Edit:
        """Puts `text` where `node` was, on as many lines."""
        lines = self.part(node).count(b"\n") - text.count(b"\n")
        return Edit(self.start(node), self.end(node), b"(%s%s)" % (text, b"\n" * lines) if lines > 0 else text)
