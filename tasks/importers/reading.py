"""Reading the files of others: bytes, UTF-8 text, JSON, lines. What is broken raises TaskError with file, place, value
and the importer's hint."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from schemas.errors import TaskError


def read_bytes(path: Path, hint: str) -> bytes:
    """The file's bytes, unpacked where it is gzipped."""
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    except (OSError, EOFError, zlib.error) as wrong:
        reason = getattr(wrong, "strerror", None) or str(wrong)
        raise TaskError(f"the task file cannot be read ({reason})", where=str(path), hint=hint) from None


def read_text(path: Path, hint: str) -> str:
    try:
        return read_bytes(path, hint).decode("utf-8-sig")
    except UnicodeDecodeError as wrong:
        line = wrong.object.count(b"\n", 0, wrong.start) + 1
        raise TaskError("the file is not UTF-8", where=f"{path}:{line}", value=wrong.object[wrong.start:wrong.end],
                        hint=hint) from None


def parse_json(text: str, where: str, hint: str, **options: Any) -> Any:
    try:
        return json.loads(text, **options)
    except (ValueError, RecursionError) as wrong:
        raise TaskError(f"not JSON ({wrong})", where=where, value=text[:80], hint=hint) from None


def rows(path: Path, hint: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a file of JSON lines, each with its place."""
    for number, line in enumerate(read_text(path, hint).split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        row = parse_json(line, where, hint)
        if not isinstance(row, dict):
            raise TaskError("the line is not a JSON object", where=where, value=line[:80], hint=hint)
        yield where, row


def text_of(row: dict[str, Any], key: str, where: str, hint: str) -> str:
    """A text of an object that is there and not empty."""
    if key not in row:
        raise TaskError("a key is missing", where=f"{where} $.{key}", hint=hint)
    if not isinstance(row[key], str) or not row[key].strip():
        raise TaskError("the value is not a text, or is empty", where=f"{where} $.{key}", value=row[key], hint=hint)
    value: str = row[key]
    return value
