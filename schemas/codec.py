"""Payload to event and back. The envelope decodes without the payload, so an unknown type is carried, not fatal.

Writers write the newest version of a type alone; readers read every version there ever was, and see the newest.
"""

from __future__ import annotations

import logging
import math

import msgspec

from schemas.envelope import MAX_EVENT_BYTES, Event, split_type, wire_type
from schemas.errors import SchemaError
from schemas.events import PAYLOADS, Payload, TurnGenerated
from schemas.ids import new_id
from schemas.superseded import SUPERSEDED, UPCASTERS

_LOGGER = logging.getLogger("headrace.schemas")
_ENCODER = msgspec.msgpack.Encoder()
_DECODERS: dict[tuple[str, int], msgspec.msgpack.Decoder[Payload]] = {
    (payload.NAME, payload.VERSION): msgspec.msgpack.Decoder(payload) for payload in (*PAYLOADS, *SUPERSEDED)}
_TYPES = {payload: wire_type(payload.NAME, payload.VERSION) for payload in PAYLOADS}


def make_event(payload: Payload, *, subject: str, source: str, time_us: int, sequence: int = 0,
               event_id: str | None = None) -> Event:
    """The event that carries `payload`. Facts that may be written twice give a repeatable `event_id`.

    Raises SchemaError for a value that is too large for an event, before it is copied.
    """
    for name in payload.__struct_fields__:
        value = getattr(payload, name)
        if type(value) in (bytes, str) and len(value) > MAX_EVENT_BYTES:
            raise SchemaError("value is too large for an event", where=f"{payload.NAME} of {subject}, field {name}",
                              value=f"{len(value)} bytes",
                              hint=f"at most {MAX_EVENT_BYTES} bytes; large values go to the artifact store")
    return Event(id=event_id or new_id(), source=source, type=_TYPES[type(payload)], subject=subject,
                 sequence=sequence, time_us=time_us, data=_ENCODER.encode(payload))


def decode_payload(event: Event) -> Payload | None:
    """The typed payload in its newest version; None for a type or a version that this release does not know.

    Raises SchemaError with the JSON path of the field at fault.
    """
    decoder = _DECODERS.get(split_type(event.type))
    if decoder is None:
        return None
    try:
        payload = decoder.decode(event.data)
        _check_buffers(payload)
    except (msgspec.MsgspecError, SchemaError, RecursionError) as wrong:
        raise SchemaError(f"payload of {event.type} violates its schema: {wrong}", where=f"event {event.id}") from None
    while upcast := UPCASTERS.get(type(payload)):
        payload = upcast(payload)
    return payload


def readable_payload(event: Event) -> Payload | None:
    """Like `decode_payload`, and None for a payload that violates its schema: for readers of facts that go on without
    it. The sink keeps it as a dead letter."""
    try:
        return decode_payload(event)
    except SchemaError as wrong:
        _LOGGER.warning("skipped an event: %s", wrong)
        return None


def _check_buffers(payload: Payload) -> None:
    if not isinstance(payload, TurnGenerated):
        return
    for name in ("context", "generated"):
        if len(getattr(payload, name)) % 4:
            raise SchemaError("buffer is not a whole number of int32", where=f"$.{name}")
    if payload.logprobs is not None and len(payload.logprobs) != len(payload.generated):
        raise SchemaError("one float32 is needed for each generated id", where="$.logprobs",
                          value=(len(payload.logprobs) // 4, len(payload.generated) // 4))
    counts = [count for _, count in payload.versions]
    if counts and (min(counts) < 0 or sum(counts) != len(payload.generated) // 4):
        raise SchemaError("versions do not count every generated id once", where="$.versions", value=payload.versions)


def finite_or_none(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
