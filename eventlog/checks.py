"""What every backend refuses to append. Checked before anything is queued, so a bad event harms no other."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.envelope import LATEST_US, MAX_EVENT_BYTES, Event
from schemas.errors import LogError, SchemaError
from schemas.topics import TOPICS

_LARGEST_SEQUENCE = 10**12 - 1


def check_topic(topic: str) -> None:
    if topic not in TOPICS:
        raise LogError("no such topic", value=topic, hint=f"topics are {', '.join(TOPICS)}")


def check_events(topic: str, events: Sequence[Event]) -> int:
    """The size of all events in bytes. Raises SchemaError or LogError naming the event and the field at fault."""
    check_topic(topic)
    size = 0
    for event in events:
        name, source, type_, subject, sequence, time_us, data = event
        try:
            size += len((name + source + type_ + subject).encode())
        except UnicodeEncodeError as wrong:
            raise SchemaError(f"event holds text that is not Unicode ({wrong.reason})", where=f"topic {topic}",
                              value=name) from None
        if not (name and source and type_):
            raise SchemaError("event needs an id, a source and a type", where=f"topic {topic}", value=event[:4])
        if type(data) is not bytes or not 0 <= time_us <= LATEST_US:
            raise SchemaError("event needs bytes and a time in microseconds", where=f"event {name}",
                              value=(type(data).__name__, time_us))
        if not 0 <= sequence <= _LARGEST_SEQUENCE:
            raise SchemaError("sequence is out of range", where=f"event {name}", value=sequence)
        size += len(data)
        if len(data) > MAX_EVENT_BYTES:
            raise LogError("event is too large", where=f"event {name}", value=f"{len(data)} bytes",
                           hint=f"at most {MAX_EVENT_BYTES} bytes; large values go to the artifact store")
    return size
