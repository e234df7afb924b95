"""The text of a document, plain or PDF, bounded in size, time and memory."""

from __future__ import annotations

import base64
import functools
import importlib.util

from schemas.errors import UnavailableError
from tasks.documents_pdf import TEXT_LIMIT
from verifiers.killable import DeadlineError, DiedError, Killable

FILE_LIMIT = 32 << 20
DEADLINE_S = 10.0
MEMORY_MB = 1024


class Unreadable(Exception):
    """The file is no document that can be read. Its text says why."""


@functools.cache
def _reader() -> Killable:
    return Killable("tasks.documents_pdf:read_pdf", deadline_s=DEADLINE_S, memory_mb=MEMORY_MB)


def pages_of(name: str, data: bytes) -> tuple[str, ...]:
    """The document's pages; a plain text is one. Raises Unreadable; UnavailableError without the library."""
    if len(data) > FILE_LIMIT:
        raise Unreadable(f"{name} is larger than {FILE_LIMIT} bytes")
    if name.lower().endswith(".pdf") or data[:5] == b"%PDF-":
        return _pdf(name, data)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Unreadable(f"{name} is no UTF-8 text") from None
    if len(text) > TEXT_LIMIT:
        raise Unreadable(f"{name} has more than {TEXT_LIMIT} characters")
    return (text,)


@functools.lru_cache(maxsize=8)
def _pdf(name: str, data: bytes) -> tuple[str, ...]:
    if importlib.util.find_spec("pypdf") is None:
        raise UnavailableError("PDF documents need the package pypdf",
                               hint="pip install 'headrace[documents]'")
    try:
        found = _reader().call(data=base64.b64encode(data).decode())
    except DeadlineError:
        raise Unreadable(f"{name} was not read within {DEADLINE_S:g} s") from None
    except (DiedError, ValueError) as wrong:
        raise Unreadable(f"{name} cannot be read within {MEMORY_MB} MB ({wrong})") from None
    if "problem" in found:
        raise Unreadable(f"{name} is {found['problem']}")
    return tuple(found["pages"])
