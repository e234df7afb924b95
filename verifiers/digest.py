"""What a verdict depends on: the digest of a verifier's source and configuration.

Two verifiers with one digest give the same verdict on the same submission; a changed byte in any module named here
makes a new one, so old and new scores stand side by side in the ledger.
"""

from __future__ import annotations

import functools
import importlib.util
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from schemas.errors import VerifierError
from schemas.ids import digest


@functools.cache
def source_of(module: str) -> bytes:
    """The bytes of a module's file, without importing it."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise VerifierError("a verifier's source cannot be found", where=module)
    return Path(spec.origin).read_bytes()


@functools.cache
def _digest_of(module: str) -> str:
    return digest(source_of(module))


def code_digest(modules: Sequence[str], configuration: Mapping[str, object] | None = None) -> str:
    """Digest of the modules' source bytes, in the order of their names, and of the configuration."""
    parts = [(name, _digest_of(name)) for name in sorted(modules)]
    return digest(json.dumps([parts, configuration or {}], sort_keys=True, separators=(",", ":")).encode())
