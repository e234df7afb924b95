"""The manifest of a batch: all that made it, as one JSON artifact. With the lake, it is enough to build it again."""

from __future__ import annotations

import hashlib
import importlib.metadata
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import msgspec

from artifacts.store import ArtifactStore
from schemas.errors import TrainingError
from schemas.events import ArtifactRef
from schemas.ids import DIGEST_PREFIX
from training.spec import BatchSpec

MEDIA_TYPE = "application/vnd.headrace.batch-manifest+json"


class ManifestRow(msgspec.Struct, frozen=True, kw_only=True):
    """One training sequence: row of the batch, position in it, and what it is worth."""

    episode_id: str
    segment: int
    sequence: int
    position: int
    tokens: int
    trained_tokens: int
    reward: float | None
    advantage: float | None


class ManifestDisposition(msgspec.Struct, frozen=True, kw_only=True):
    episode_id: str
    disposition: str
    reason: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    batch_id: str
    run_id: str
    step: int
    version: int
    """The weight version that this batch is meant to improve."""
    spec: BatchSpec
    snapshot: dict[str, int]
    """What of the log was read: `topic-partition` to next offset."""
    code_digest: str
    """Of the sources and libraries that turn a snapshot into a batch."""
    packing: str
    batch: ArtifactRef
    """The Arrow file."""
    rows: list[ManifestRow]
    dispositions: list[ManifestDisposition]
    abandoned_groups: list[str]
    """All groups of the run so far that closed without a member to decide about."""


def encode_manifest(manifest: Manifest) -> bytes:
    return msgspec.json.encode(manifest, order="deterministic")


def load_manifest(digest: str, artifacts: ArtifactStore) -> Manifest:
    """Raises ArtifactError, or TrainingError for an artifact that is no manifest of this release."""
    try:
        return msgspec.json.decode(artifacts.get(digest), type=Manifest)
    except msgspec.MsgspecError as wrong:
        raise TrainingError(f"manifest cannot be read ({wrong})", where=digest) from None


_SOURCES = (
    "training.advantages", "training.batch", "training.batch_file", "training.manifest", "training.packing",
    "training.selection", "training.sequences", "training.spec", "schemas.admission", "schemas.codec", "schemas.enums",
    "schemas.envelope", "schemas.events", "schemas.ids", "schemas.tokens", "schemas.transcript",
    "lake.history", "lake.relations", "lake.views")
_LIBRARIES = ("duckdb", "msgspec", "numpy", "pyarrow")


@cache
def code_digest() -> str:
    """Batches made under different digests are not compared: a difference would prove nothing."""
    whole = hashlib.sha256()
    for name in _SOURCES:
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            raise TrainingError("source of batch building is not there", value=name)
        whole.update(f"{name}\0{hashlib.sha256(Path(spec.origin).read_bytes()).hexdigest()}\n".encode())
    for name in _LIBRARIES:
        whole.update(f"{name}\0{importlib.metadata.version(name)}\n".encode())
    return DIGEST_PREFIX + whole.hexdigest()
