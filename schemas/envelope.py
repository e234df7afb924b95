"""The envelope: CloudEvents 1.0 in the Kafka protocol binding, binary mode.

Six headers and no more, because each costs about 3 us per event and reader. The subject is the record's key, the
time its timestamp. Source: CloudEvents specification 1.0.2 and its Kafka protocol binding; `sequence` is the
documented extension of that name.
"""

from __future__ import annotations

from typing import NamedTuple

from schemas.errors import SchemaError

CONTENT_TYPE = "application/msgpack"
TYPE_PREFIX = "headrace."
_SEQUENCE_DIGITS = 12
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


def wire_type(name: str, version: int = 1) -> str:
    return f"{TYPE_PREFIX}{name}.v{version}"


def split_type(wire: str) -> tuple[str, int]:
    """`headrace.turn.generated.v1` gives (`turn.generated`, 1); a foreign type gives (type, 0)."""
    name, _, version = wire.removeprefix(TYPE_PREFIX).rpartition(".v")
    if not wire.startswith(TYPE_PREFIX) or not name or not version.isdigit():
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


def from_wire(key: bytes | None, value: bytes | None, headers: Headers | tuple, time_us: int) -> Event:
    """The event of a Kafka message; raises SchemaError naming the header at fault."""
    found = dict(headers)
    try:
        if found["ce_specversion"] != b"1.0":
            raise SchemaError("unknown CloudEvents version", where="header ce_specversion", value=found["ce_specversion"])
        return Event(
            id=found["ce_id"].decode(), source=found["ce_source"].decode(), type=found["ce_type"].decode(),
            subject=(key or b"").decode(), sequence=int(found["ce_sequence"]), time_us=time_us, data=value or b"")
    except KeyError as missing:
        raise SchemaError("header is missing", where=f"header {missing.args[0]}") from None
    except (UnicodeDecodeError, ValueError) as wrong:
        raise SchemaError(f"header cannot be read ({wrong})", where="headers") from None
