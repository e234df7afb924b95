"""Stores many contents side by side: each waits for a disk or a network, and a workspace may have thousands."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from artifacts.store import ArtifactStore
from schemas.ids import digest

_THREADS = 8
_BATCH, _BATCH_BYTES = 256, 16 << 20
_LARGE = 1 << 20


class Storing:
    """What was put is stored when `flush` returns. Holds a batch at most."""

    def __init__(self, artifacts: ArtifactStore) -> None:
        self._artifacts = artifacts
        self._waiting: dict[str, bytes] = {}
        self._size = 0

    def put(self, data: bytes) -> str:
        """Its digest."""
        if len(data) >= _LARGE:
            return self._artifacts.put(data).digest
        name = digest(data)
        if name not in self._waiting:
            self._waiting[name] = data
            self._size += len(data)
            if len(self._waiting) >= _BATCH or self._size >= _BATCH_BYTES:
                self.flush()
        return name

    def flush(self) -> None:
        """Raises what the store raises."""
        waiting, self._waiting, self._size = list(self._waiting.values()), {}, 0
        if len(waiting) <= _THREADS:
            self._store(waiting)
            return
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(self._store, (waiting[number::_THREADS] for number in range(_THREADS))))

    def _store(self, contents: list[bytes]) -> None:
        for data in contents:
            self._artifacts.put(data)
