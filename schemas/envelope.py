"""The envelope: CloudEvents 1.0 in the Kafka protocol binding, binary mode.

Six headers and no more, because each costs about 3 us per event and reader. The subject is the record's key, the
time its timestamp. Source: CloudEvents specification 1.0.2 and its Kafka protocol binding; `sequence` is the
documented extension of that name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import Any, NamedTuple

from schemas.errors import SchemaError

CONTENT_TYPE = "application/msgpack"
TYPE_PREFIX = "headrace."
MAX_EVENT_BYTES = 32 << 20
"""Of a payload. Larger values go to the artifact store, and events name them."""
EARLIEST_US, LATEST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
"""Times of the years 1 to 9999, which every reader of a date understands."""
_SEQUENCE_DIGITS = 12
_LARGEST_SEQUENCE = 2**63 - 1
_VERSION = re.compile("[1-9][0-9]{0,8}")
Headers = list[tuple[str, bytes]]


class Event(NamedTuple):
    """One fact. `type` is the full wire name (`headrace.turn.generated.v1`); `data` the undecoded payload."""

    id: str
    source: str
    type: str
    subject: str
    sequence: int
    time_us: int
    data: bytes

    @property
    def name(self) -> str:
        """The name without prefix and version, e.g. `turn.generated`."""
        return split_type(self.type)[0]

    @property
    def version(self) -> int:
        return split_type(self.type)[1]


class Position(NamedTuple):
    topic: str
    partition: int
    offset: int


class Record(NamedTuple):
    """An event where the log keeps it. `event` is None when headers could not be read; then `raw` explains."""

    position: Position
    event: Event | None
    raw: RawRecord | None = None


class RawRecord(NamedTuple):
    """What a reader could not make an event of: kept for the dead letters."""

    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...]
    time_us: int
    reason: str


_new_event: Callable[[tuple[Any, ...]], Event] = partial(tuple.__new__, Event)
"""Past the constructor, which would be a fifth of what it costs to read an event."""
new_position: Callable[[tuple[str, int, int]], Position] = partial(tuple.__new__, Position)
new_record: Callable[[tuple[Position, Event | None, RawRecord | None]], Record] = partial(tuple.__new__, Record)


def wire_type(name: str, version: int = 1) -> str:
    return f"{TYPE_PREFIX}{name}.v{version}"


@lru_cache(256)
def split_type(wire: str) -> tuple[str, int]:
    """`headrace.turn.generated.v1` gives (`turn.generated`, 1); a foreign type gives (type, 0)."""
    name, _, version = wire.removeprefix(TYPE_PREFIX).rpartition(".v")
    if not wire.startswith(TYPE_PREFIX) or not name or not _VERSION.fullmatch(version):
        return wire, 0
    return name, int(version)


def to_headers(event: Event) -> Headers:
    return [
        ("ce_specversion", b"1.0"),
        ("ce_id", event.id.encode()),
        ("ce_source", event.source.encode()),
        ("ce_type", event.type.encode()),
        ("content-type", CONTENT_TYPE.encode()),
        ("ce_sequence", b"%0*d" % (_SEQUENCE_DIGITS, event.sequence)),
    ]


def from_wire(key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes]], time_us: int) -> Event:
    """The event of a Kafka message; raises SchemaError naming the header at fault."""
    found = dict(headers)
    try:
        sequence = found["ce_sequence"]
        event = _new_event((found["ce_id"].decode(), found["ce_source"].decode(), found["ce_type"].decode(),
                            (key or b"").decode(), int(sequence), time_us, value or b""))
        if (event.id and event.source and event.type and found["ce_specversion"] == b"1.0" and sequence.isdigit()
                and len(sequence) < 20 and event.sequence <= _LARGEST_SEQUENCE):
            return event
    except (AttributeError, KeyError, ValueError):
        pass
    return _read_with_care(key, value, found, time_us)


def _read_with_care(key: bytes | None, value: bytes | None, found: dict[str, bytes], time_us: int) -> Event:
    """Header by header, to say which one is at fault."""
    if _header(found, "ce_specversion") != "1.0":
        raise SchemaError("unknown CloudEvents version", where="header ce_specversion", value=found["ce_specversion"])
    return Event(id=_header(found, "ce_id"), source=_header(found, "ce_source"), type=_header(found, "ce_type"),
                 subject=_text(key or b"", "key"), sequence=_sequence(found), time_us=time_us, data=value or b"")


def _header(found: dict[str, bytes], name: str) -> str:
    """CloudEvents wants every attribute to be non-empty; Kafka allows a header without a value."""
    value = found.get(name)
    if not value:
        raise SchemaError("header is empty" if name in found else "header is missing", where=f"header {name}")
    return _text(value, f"header {name}")


def _text(value: bytes, where: str) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as wrong:
        raise SchemaError(f"not UTF-8 ({wrong})", where=where, value=value) from None


def _sequence(found: dict[str, bytes]) -> int:
    text = _header(found, "ce_sequence")
    if not (text.isascii() and text.isdigit() and len(text) < 20) or int(text) > _LARGEST_SEQUENCE:
        raise SchemaError("header is not a sequence number", where="header ce_sequence", value=text)
    return int(text)
