"""The rows of a sealed batch: they stand in its manifest, an artifact that the event names."""

from __future__ import annotations

from typing import Literal

import msgspec

from artifacts.store import ArtifactStore
from consumers.rows import Place, Row
from schemas.codec import finite_or_none
from schemas.errors import SchemaError
from schemas.events import BatchSealed


class ManifestRow(msgspec.Struct, frozen=True):
    episode_id: str
    segment: int
    sequence: int
    position: int
    tokens: int
    trained_tokens: int
    reward: float | None = None
    advantage: float | None = None


class ManifestDisposition(msgspec.Struct, frozen=True):
    episode_id: str
    disposition: Literal["trained", "masked", "stale", "surplus", "filtered"]
    reason: str = ""


class Manifest(msgspec.Struct, frozen=True):
    """What the lake needs of it; a manifest holds more."""

    rows: list[ManifestRow]
    dispositions: list[ManifestDisposition]


_DECODER = msgspec.json.Decoder(Manifest)


def manifest_rows(sealed: BatchSealed, artifacts: ArtifactStore, place: Place) -> list[Row]:
    """Rows of batch_rows and batch_dispositions. Raises ArtifactError, or SchemaError for a manifest that is none."""
    data = artifacts.get(sealed.manifest.digest)
    try:
        manifest = _DECODER.decode(data)
    except msgspec.MsgspecError as wrong:
        raise SchemaError(f"manifest violates its schema: {wrong}", where=sealed.manifest.digest) from None
    found = [Row("batch_rows", (
        sealed.batch_id, row.episode_id, row.segment, row.sequence, row.position, row.tokens, row.trained_tokens,
        finite_or_none(row.reward), finite_or_none(row.advantage), *place.fact)) for row in manifest.rows]
    return found + [Row("batch_dispositions", (
        sealed.run_id, decision.episode_id, decision.disposition, decision.reason, sealed.batch_id, *place.fact))
        for decision in manifest.dispositions]
