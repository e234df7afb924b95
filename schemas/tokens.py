"""Token buffers and the causal-prefix digest.

Ids are little-endian int32, logprobs little-endian float32, so a generated token costs 8 bytes and a context token 4.
"""

from __future__ import annotations

import hashlib
import sys
from array import array
from collections.abc import Iterable, Sequence
from typing import Any

from schemas.errors import SchemaError
from schemas.ids import DIGEST_PREFIX

_LARGEST_ID = 2**31 - 1
_LARGEST_FLOAT = 3.4e38
"""Of float32: a larger one would become an infinity."""


def _buffer(kind: str, values: Iterable[float]) -> bytes:
    buffer = array(kind, values)
    if sys.byteorder == "big":
        buffer.byteswap()
    return buffer.tobytes()


def _values(kind: str, data: bytes) -> list[Any]:
    if len(data) % 4:
        raise SchemaError("buffer is not a whole number of 4-byte values", value=len(data))
    buffer = array(kind)
    buffer.frombytes(data)
    if sys.byteorder == "big":
        buffer.byteswap()
    return buffer.tolist()


def pack_ids(ids: Iterable[int]) -> bytes:
    return _buffer("i", ids)


def unpack_ids(data: bytes) -> list[int]:
    return _values("i", data)


def pack_logprobs(logprobs: Iterable[float]) -> bytes:
    return _buffer("f", logprobs)


def unpack_logprobs(data: bytes) -> list[float]:
    return _values("f", data)


class PrefixDigest:
    """SHA-256 over all ids of a segment that stand before a turn's first generated token, in order.

    Incremental, so an episode of n tokens costs O(n) in all.
    """

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, ids: bytes) -> None:
        self._hash.update(ids)

    def value(self) -> str:
        return DIGEST_PREFIX + self._hash.copy().hexdigest()


def check_generated(ids: Sequence[int], logprobs: Sequence[float] | None, where: str) -> None:
    """Refuse, at the producer, ids that are none, and logprobs that do not match their tokens or are not finite."""
    for index, token in enumerate(ids):
        if not 0 <= token <= _LARGEST_ID:
            raise SchemaError("token id is out of range", where=f"{where}.generated[{index}]", value=token)
    if logprobs is None:
        return
    if len(logprobs) != len(ids):
        raise SchemaError(
            f"{len(ids)} generated tokens but {len(logprobs)} logprobs", where=where,
            hint="a policy must return one logprob for each sampled token")
    for index, value in enumerate(logprobs):
        if not -_LARGEST_FLOAT < value < _LARGEST_FLOAT:
            raise SchemaError("logprob is not finite", where=f"{where}.logprobs[{index}]", value=value)
