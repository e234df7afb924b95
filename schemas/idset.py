"""A set of ids that only grows, in about 20 bytes each: what readers remember of episodes that are over.

Invariants. An id is known by its MD5, 16 bytes: among ten million the chance that any two meet is 10^-25, so answers
are taken as exact, and are the same in every process and after every restart. Digests lie end to end in at most 65,536
byte strings, chosen by their first two bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import md5

_WIDTH = 16


class IdSet:
    def __init__(self, ids: Iterable[str] = ()) -> None:
        self._buckets: dict[bytes, bytearray] = {}
        self._count = 0
        for one in ids:
            self.add(one)

    def __len__(self) -> int:
        return self._count

    def __contains__(self, one: str) -> bool:
        return self._has(_digest(one))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IdSet) and self._digests() == other._digests()

    def add(self, one: str) -> None:
        digest = _digest(one)
        if not self._has(digest):
            self._bucket(digest[:2]).extend(digest)
            self._count += 1

    def add_digests(self, digests: bytes) -> None:
        """Many at once, as 16 bytes each, of ids that are not in the set yet."""
        import numpy as np

        rows = np.frombuffer(digests, dtype=np.uint8).reshape(-1, _WIDTH)
        keys = rows[:, 0].astype(np.uint16) << 8 | rows[:, 1]
        order = np.argsort(keys, kind="stable")
        rows, keys = rows[order], keys[order]
        found, starts = np.unique(keys, return_index=True)
        for key, part in zip(found.tolist(), np.split(rows, starts[1:]), strict=False):
            self._bucket(key.to_bytes(2, "big")).extend(part.tobytes())
        self._count += len(rows)

    def _digests(self) -> set[bytes]:
        return {bytes(bucket[at:at + _WIDTH]) for bucket in self._buckets.values()
                for at in range(0, len(bucket), _WIDTH)}

    def _bucket(self, key: bytes) -> bytearray:
        return self._buckets.setdefault(key, bytearray())

    def _has(self, digest: bytes) -> bool:
        bucket = self._buckets.get(digest[:2])
        if bucket is None:
            return False
        at = bucket.find(digest)
        while at >= 0 and at % _WIDTH:  # Found across two neighbours.
            at = bucket.find(digest, at + 1)
        return at >= 0


def _digest(one: str) -> bytes:
    return md5(one.encode("utf-8", "surrogatepass"), usedforsecurity=False).digest()
