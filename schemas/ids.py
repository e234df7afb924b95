"""Ids and digests. Ids are time-ordered (UUIDv7, RFC 9562) unless they must be repeatable (UUIDv5 of their parts)."""

from __future__ import annotations

import hashlib
import os
import random
import time
import uuid

NAMESPACE = uuid.UUID("6b1f2f0e-5d4a-5f57-9c43-4d1f6f0f5a10")
DIGEST_PREFIX = "sha256:"
_RANDOM = random.Random(os.urandom(32))
os.register_at_fork(after_in_child=lambda: _RANDOM.seed(os.urandom(32)))


def new_id() -> str:
    """A time-ordered id: 48 bits of milliseconds, then randomness (RFC 9562, version 7)."""
    milliseconds = time.time_ns() // 1_000_000
    value = (milliseconds << 80) | _RANDOM.getrandbits(80)
    value = value & ~(0xF << 76) | (0x7 << 76)
    value = value & ~(0x3 << 62) | (0x2 << 62)
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
    """Microseconds since the epoch, UTC."""
    return time.time_ns() // 1000
