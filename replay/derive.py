"""The rows that records become, a window at a time: the sink's judgement applied to one partition from its source.

Invariant: windows follow each other in the order of offsets, and what they hold in memory is bounded by rows and bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from consumers.columns import RowBuffer
from consumers.folding import Folding
from eventlog.log import TopicPartition
from schemas.envelope import Record
from schemas.errors import LakeError

if TYPE_CHECKING:
    import pyarrow as pa

ROWS = 20_000
_BYTES = 64 << 20
_SOURCES = ("consumers.columns", "consumers.folding", "consumers.manifest", "consumers.rows", "schemas.admission",
            "schemas.codec", "schemas.envelope", "schemas.events", "schemas.head", "schemas.tables")


class Source(Protocol):
    def read(self, part: TopicPartition, low: int, high: int) -> Iterator[Record]: ...


class Window(NamedTuple):
    """Tables by name of the offsets from `low` to `high` of one partition."""

    part: TopicPartition
    low: int
    high: int
    tables: dict[str, pa.Table]


def windows(source: Source, folding: Folding, part: TopicPartition, low: int, high: int) -> Iterator[Window]:
    """All of the partition between two offsets. `folding` stands at `low`."""
    buffer, size, start, wanted = RowBuffer(), 0, low, low
    for record in source.read(part, low, high):
        buffer.add(folding.rows(record))
        size += len(record.event.data) if record.event else 0
        wanted = record.position.offset + 1
        if buffer.size >= ROWS or size >= _BYTES:
            yield Window(part, start, wanted, buffer.tables())
            buffer, size, start = RowBuffer(), 0, wanted
    if start < high:
        yield Window(part, start, high, buffer.tables())


def judgement() -> str:
    """Digest of the code that turns records into rows: what was begun under one is not finished under another."""
    whole = hashlib.sha256()
    for name in _SOURCES:
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            raise LakeError("source of the sink's judgement is not there", value=name)
        whole.update(Path(spec.origin).read_bytes())
    return whole.hexdigest()[:16]
