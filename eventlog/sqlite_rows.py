"""A row of the SQLite log as a record. A row that this program did not write so is a record without an event, with the
reason and its bytes, as a Kafka message with bad headers would be: kept for the dead letters, in the way of no other.
"""

from __future__ import annotations

from typing import Any

import apsw

from schemas.envelope import Event, Position, RawRecord, Record

COLUMNS = "id, source, type, subject, sequence, time_us, data"
_KINDS = (str, str, str, str, int, int, bytes)
_LARGEST = 2**63 - 1


def record_of(position: Position, row: tuple[Any, ...]) -> Record:
    """The record of COLUMNS."""
    event = Event(*row)
    if tuple(map(type, row)) == _KINDS and event.id and event.source and event.type and event.sequence >= 0:
        return Record(position, event)
    return Record(position, None, _raw(row))


def unreadable(connection: apsw.Connection, position: Position, topic: int) -> Record:
    """The row at a position whose text is not UTF-8, so that it cannot be read as the rest are."""
    columns = ", ".join(f"case typeof({name}) when 'text' then cast({name} as blob) else {name} end"
                        for name in COLUMNS.split(", "))
    row = connection.execute(f"select {columns} from events where topic = ? and partition = ? and offset = ?",
                             (topic, position.partition, position.offset)).fetchone()
    return Record(position, None, _raw(row or (None,) * len(_KINDS)))


def _raw(row: tuple[Any, ...]) -> RawRecord:
    names = COLUMNS.split(", ")
    reason = next(filter(None, map(_wrong, names, row)), "row is not of this program")
    value = _bytes(row[6])
    headers = tuple((name, _bytes(cell)) for name, cell in zip(names[:6], row, strict=False))
    time_us = row[5] if type(row[5]) is int and 0 <= row[5] <= _LARGEST else 0
    return RawRecord(_bytes(row[3]), value, headers, time_us, reason)


def _wrong(name: str, cell: Any) -> str:
    if name in ("sequence", "time_us"):
        return "" if type(cell) is int and cell >= 0 else f"{name} is not a whole number from 0"
    if name == "data":
        return "" if type(cell) is bytes else "data is not bytes"
    if type(cell) is bytes:
        try:
            cell.decode()
        except UnicodeDecodeError as wrong:
            return f"{name} is not UTF-8 ({wrong.reason} at byte {wrong.start})"
        return ""
    if type(cell) is not str:
        return f"{name} is not text"
    return "" if cell or name == "subject" else f"{name} is empty"


def _bytes(cell: Any) -> bytes:
    return cell if type(cell) is bytes else b"" if cell is None else str(cell).encode()
