"""Verdicts given before, by all that they depend on: submission, verifier digest, seed, isolation.

A cache and nothing more: only `ok` verdicts are kept, a damaged file is thrown away, a damaged verdict is none (each
stands beside a digest of itself and its key), and a replay never asks it, since what it wants to know is whether the
verdict still comes out the same.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from pathlib import Path

import apsw
import msgspec

from schemas.events import ArtifactRef
from schemas.ids import digest

log = logging.getLogger(__name__)
_BUSY_MS = 2000
_SEAL_BYTES = 32
_SCHEMA = "create table if not exists verdicts (key blob primary key, verdict blob not null) without rowid"


class Verdict(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    reward: float
    components: dict[str, float]
    evidence: ArtifactRef


_DECODER = msgspec.msgpack.Decoder(Verdict)


def key_of(submission: str, verifier_digest: str, seed: int, isolated: bool) -> bytes:
    return bytes.fromhex(digest(msgspec.json.encode([submission, verifier_digest, seed, isolated]))[-64:])


def _sealed(key: bytes, verdict: Verdict) -> bytes:
    data = msgspec.msgpack.encode(verdict)
    return hashlib.sha256(key + data).digest() + data


def _unsealed(key: bytes, stored: object) -> Verdict | None:
    if not isinstance(stored, bytes):
        return None
    seal, data = stored[:_SEAL_BYTES], stored[_SEAL_BYTES:]
    return _DECODER.decode(data) if hashlib.sha256(key + data).digest() == seal else None


class Verdicts:
    """One SQLite file that several processes share. Thread-safe. It never raises: at worst it knows nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._connection: apsw.Connection | None = None

    def get(self, key: bytes) -> Verdict | None:
        with self._lock:
            try:
                rows = self._open().execute("select verdict from verdicts where key = ?", (key,)).fetchall()
                return _unsealed(key, rows[0][0]) if rows else None
            except (apsw.Error, OSError) as wrong:
                self._give_up(wrong)
                return None

    def put(self, key: bytes, verdict: Verdict) -> None:
        with self._lock:
            try:
                self._open().execute("insert or replace into verdicts values (?, ?)", (key, _sealed(key, verdict)))
            except (apsw.Error, OSError) as wrong:
                self._give_up(wrong)

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _open(self) -> apsw.Connection:
        if self._connection is None:
            connection = apsw.Connection(str(self.path))
            connection.set_busy_timeout(_BUSY_MS)
            connection.execute("pragma journal_mode = wal; pragma synchronous = normal")
            connection.execute(_SCHEMA)
            self._connection = connection
        return self._connection

    def _give_up(self, wrong: Exception) -> None:
        log.info("the cache of verdicts is passed over: %s", wrong)
        if self._connection is not None:
            self._connection.close(force=True)
            self._connection = None
        if isinstance(wrong, apsw.NotADBError | apsw.CorruptError):
            for suffix in ("", "-wal", "-shm"):
                Path(f"{self.path}{suffix}").unlink(missing_ok=True)
