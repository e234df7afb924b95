"""The instructions of a Dockerfile's last stage, told apart: continued lines, comments, here-documents, JSON forms."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

_HEREDOC = re.compile(r"<<(-?)([\"']?)(\w+)\2")
_FLAG = re.compile(r"--[\w-]+(?:=\S+)?\s+")


class Document(NamedTuple):
    """A here-document: its word, and its text."""

    name: str
    text: str


class Line(NamedTuple):
    order: str
    """In capital letters: RUN, COPY, ..."""
    rest: str
    """Without flags such as `--chown`."""
    flags: tuple[str, ...]
    documents: tuple[Document, ...]
    words: tuple[str, ...]
    """Of a JSON form; empty otherwise."""

    @property
    def shown(self) -> str:
        return f"{self.order} {self.rest}"[:200]


def lines(text: str) -> list[Line]:
    """Those behind the last FROM that is there, FROM included."""
    found = list(_lines(text.replace("\r\n", "\n")))
    starts = [at for at, line in enumerate(found) if line.order == "FROM"]
    before = [line for line in found[:starts[0]] if line.order == "ARG"] if starts else []
    return before + found[starts[-1]:] if starts else found


def _lines(text: str) -> Iterator[Line]:
    rows = iter(text.split("\n"))
    for row in rows:
        whole = row.strip()
        if not whole or whole.startswith("#"):
            continue
        while whole.endswith("\\"):
            whole = whole[:-1]
            for more in rows:
                if not more.strip().startswith("#"):
                    whole += " " + more.strip()
                    break
            else:
                break
        order, _, rest = whole.strip().partition(" ")
        names = _HEREDOC.findall(rest) if order.upper() in ("RUN", "COPY", "ADD") else []
        documents = tuple(_document(rows, name, bool(dash)) for dash, _, name in names)
        yield _line(order.upper(), rest.strip(), documents)


def _document(rows: Iterator[str], name: str, indented: bool) -> Document:
    kept = []
    for row in rows:
        row = row.lstrip("\t") if indented else row
        if row == name:
            break
        kept.append(row)
    return Document(name, "".join(f"{row}\n" for row in kept))


def _line(order: str, rest: str, documents: tuple[Document, ...]) -> Line:
    flags = []
    while found := _FLAG.match(rest):
        flags.append(found[0].strip())
        rest = rest[found.end():]
    words: tuple[str, ...] = ()
    if rest.startswith("["):
        try:
            given = json.loads(rest)
            words = tuple(given) if all(isinstance(word, str) for word in given) else ()
        except (ValueError, RecursionError):
            words = ()
    return Line(order, rest, tuple(flags), documents, words)
