"""Ids, digests, times. Ids are time-ordered (UUIDv7, RFC 9562) unless they must be repeatable (UUIDv5 of their parts).

Within a process ids and times never go back, whatever the machine's clock does.
"""

from __future__ import annotations

import hashlib
import os
import random
import threading
import time
import uuid

NAMESPACE = uuid.UUID("6b1f2f0e-5d4a-5f57-9c43-4d1f6f0f5a10")
DIGEST_PREFIX = "sha256:"
_RANDOM = random.Random(os.urandom(32))
os.register_at_fork(after_in_child=lambda: _RANDOM.seed(os.urandom(32)))
_TAIL_BITS, _STEP_BITS = 74, 40


class _Clock:
    """What this process said last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._said_us = self._at_us = 0
        self._milliseconds = self._tail = 0

    def now_us(self) -> int:
        with self._lock:
            wall, steady = wall_us(), time.monotonic_ns() // 1000
            if wall < self._said_us:
                wall = self._said_us + steady - self._at_us
            self._said_us, self._at_us = wall, steady
            return wall

    def stamp(self) -> tuple[int, int]:
        """Milliseconds and 74 bits, larger than the last pair (RFC 9562, 6.2, method 2)."""
        now = self.now_us() // 1000
        with self._lock:
            self._tail += 1 + _RANDOM.getrandbits(_STEP_BITS)
            if now > self._milliseconds:
                self._milliseconds, self._tail = now, _RANDOM.getrandbits(_TAIL_BITS)
            elif self._tail >> _TAIL_BITS:
                self._milliseconds, self._tail = self._milliseconds + 1, _RANDOM.getrandbits(_TAIL_BITS - 1)
            return self._milliseconds, self._tail


def new_id() -> str:
    """A time-ordered id: 48 bits of milliseconds, then randomness (RFC 9562, version 7)."""
    milliseconds, tail = _CLOCK.stamp()
    value = milliseconds << 80 | 0x7 << 76 | tail >> 62 << 64 | 0x2 << 62 | tail & (1 << 62) - 1
    return str(uuid.UUID(int=value))


def stable_id(*parts: object) -> str:
    """The same id for the same parts, in any process at any time."""
    return str(uuid.uuid5(NAMESPACE, "\x1f".join(str(part) for part in parts)))


def digest(data: bytes | memoryview) -> str:
    return DIGEST_PREFIX + hashlib.sha256(data).hexdigest()


def is_digest(text: str) -> bool:
    body = text.removeprefix(DIGEST_PREFIX)
    return text.startswith(DIGEST_PREFIX) and len(body) == 64 and set(body) <= set("0123456789abcdef")


def now_us() -> int:
    """Microseconds since the epoch, UTC, for events: a clock that was put back goes on from what was said last."""
    return _CLOCK.now_us()


def wall_us() -> int:
    """What the machine's clock says now: for leases and ages, which other processes compare with theirs."""
    return time.time_ns() // 1000


_CLOCK = _Clock()
