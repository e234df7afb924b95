"""Ids that stand twice in a log of any size: 36 bytes an event in temporary files, sorted one share at a time."""

from __future__ import annotations

import hashlib
import struct
import tempfile
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

from schemas.envelope import Event, Position
from schemas.topics import TOPICS, TRAJECTORIES

_PLACE = struct.Struct("<HHq")
_SHARES = 64
_BUFFER_BYTES = 1 << 13
_ENTRY = [("high", "<u8"), ("low", "<u8"), ("content", "<u8"),
          ("topic", "<u2"), ("partition", "<u2"), ("offset", "<i8")]


class Repeat(NamedTuple):
    """A second record of an id, and where the first is."""

    position: Position
    first: Position
    same: bool
    """Whether it says the same: in `trajectories` all of the event, elsewhere what the fact is about."""


class Repeats:
    """Use as a context manager."""

    def __init__(self) -> None:
        self._buffers = [bytearray() for _ in range(_SHARES)]
        self._files: list[IO[bytes] | None] = [None] * _SHARES

    def __enter__(self) -> Repeats:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files:
            if file is not None:
                file.close()

    def see(self, position: Position, event: Event) -> None:
        topic, partition, offset = position
        name = hashlib.blake2b(f"{topic}\0{event.id}".encode("utf-8", "replace"), digest_size=16).digest()
        share = name[0] % _SHARES
        buffer = self._buffers[share]
        buffer += name + _content(topic, event)
        buffer += _PLACE.pack(TOPICS.index(topic), partition, offset)
        if len(buffer) >= _BUFFER_BYTES:
            file = self._files[share] = self._files[share] or tempfile.TemporaryFile()  # noqa: SIM115
            file.write(buffer)
            buffer.clear()

    def found(self) -> Iterator[Repeat]:
        import numpy as np

        for buffer, file in zip(self._buffers, self._files, strict=True):
            if file is not None:
                file.seek(0)
            entries = np.frombuffer((file.read() if file is not None else b"") + buffer, dtype=_ENTRY)
            entries = entries[np.lexsort((entries["offset"], entries["partition"], entries["low"], entries["high"]))]
            equal = (entries["high"][1:] == entries["high"][:-1]) & (entries["low"][1:] == entries["low"][:-1])
            first = 0
            for at in np.flatnonzero(equal).tolist():
                if not at or not equal[at - 1]:
                    first = at
                yield Repeat(_position(entries[at + 1]), _position(entries[first]),
                             bool(entries[at + 1]["content"] == entries[first]["content"]))


def _position(entry: Any) -> Position:
    return Position(TOPICS[int(entry["topic"])], int(entry["partition"]), int(entry["offset"]))


def _content(topic: str, event: Event) -> bytes:
    about = event if topic == TRAJECTORIES else event[2:5]
    return hashlib.blake2b(repr(about).encode("utf-8", "replace"), digest_size=8).digest()
