"""An event for people (one line) and for programs (one row). What an agent wrote is untrusted: a line stays a line."""

from __future__ import annotations

import base64
import datetime
import shutil
from collections.abc import Mapping
from typing import Any, TextIO

import msgspec

from headrace.output import in_line, plain
from schemas.codec import decode_payload
from schemas.envelope import Record
from schemas.errors import SchemaError
from schemas.events import TurnGenerated
from schemas.tokens import unpack_ids, unpack_logprobs

COLUMNS = ("topic", "partition", "offset", "time", "id", "type", "version", "subject", "sequence", "source", "data",
           "error")
_WIDEST_VALUE = 60
_WIDEST_LINE = 400


def row_of(record: Record) -> list[Any]:
    """COLUMNS. `data` is the payload with token buffers as lists; base64 text where it cannot be read."""
    place: list[Any] = list(record.position)
    event, raw = record.event, record.raw
    if event is None:
        assert raw is not None
        headers: list[Any] = [None, None, None, _text(raw.key), None, None]
        return [*place, _time(raw.time_us), *headers, _base64(raw.value), raw.reason]
    data, error = _data(record)
    return [*place, _time(event.time_us), event.id, event.name, event.version, event.subject, event.sequence,
            event.source, data, error]


def line_of(record: Record, file: TextIO) -> str:
    topic, partition, offset, time, _, name, _, subject, sequence, _, data, error = row_of(record)
    about = f"! {error}" if error else _summary(data)
    number = "" if sequence is None else str(sequence)
    place = f"{topic}-{partition}@{offset}"
    line = in_line(f"{time}  {place:<22}  {subject}  {number:>4}  {name or '?':<18}  {about}")
    widest = shutil.get_terminal_size().columns if file.isatty() else _WIDEST_LINE
    return line if len(line) <= widest else line[: widest - 1] + "…"


def _data(record: Record) -> tuple[Any, str | None]:
    event = record.event
    assert event is not None
    try:
        payload = decode_payload(event)
    except SchemaError as wrong:
        return _base64(event.data), wrong.what
    if payload is None:
        return _foreign(event.data), None
    values = msgspec.to_builtins(payload, builtin_types=(bytes,))
    if isinstance(payload, TurnGenerated):
        values |= {"context": unpack_ids(payload.context), "generated": unpack_ids(payload.generated),
                   "logprobs": None if payload.logprobs is None else unpack_logprobs(payload.logprobs)}
    return plain(values), None


def _foreign(data: bytes) -> Any:
    """A payload of an unknown type, if it is MessagePack at all."""
    try:
        return plain(msgspec.msgpack.decode(data))
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return _base64(data)


def _summary(data: Any) -> str:
    if not isinstance(data, Mapping):
        return _short(data)
    return " ".join(f"{name}={_short(value)}" for name, value in data.items() if value not in (None, "", [], {}))


def _short(value: Any) -> str:
    if isinstance(value, list):
        return f"[{len(value)}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name}: {_short(inner)}' for name, inner in value.items())}}}"[:_WIDEST_VALUE]
    text = in_line(str(value)) if not isinstance(value, float) else f"{value:g}"
    return text if len(text) <= _WIDEST_VALUE else text[: _WIDEST_VALUE - 1] + "…"


def _time(time_us: int) -> str:
    try:
        at = datetime.datetime.fromtimestamp(time_us / 1e6, datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return str(time_us)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()
