"""Building a batch again: from the lake at the manifest's snapshot, compared byte for byte with what was sealed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from artifacts.store import ArtifactStore
from schemas.errors import ArtifactError, NotFoundError
from training.batch import Built, build
from training.manifest import Manifest, code_digest, encode_manifest, load_manifest

if TYPE_CHECKING:
    from lake.lake import Lake

_BATCH = "select run_id, step, manifest, sha256 from batches where batch_id = $batch"
_ROWS = """
select episode_id, segment, sequence, position, tokens, trained_tokens, reward, advantage from batch_rows
where batch_id = $batch order by sequence, position
"""
_BEFORE = "select manifest from batches where run_id = $run and step = $step"


class Rebuilt(msgspec.Struct, frozen=True, kw_only=True):
    """`detail` says in words where the first difference lies; empty if there is none."""

    batch_id: str
    run_id: str
    step: int
    outcome: Literal["identical", "different", "not comparable"]
    sealed_sha256: str
    rebuilt_sha256: str | None = None
    detail: str = ""


def rebuild(batch_id: str, *, lake: Lake, artifacts: ArtifactStore) -> Rebuilt:
    """Raises NotFoundError for an unknown batch."""
    found = lake.sql(_BATCH, None, {"batch": batch_id}).to_pylist()
    if not found:
        raise NotFoundError("no such batch", value=batch_id, hint="`headrace batches ls` lists them")
    run_id, step, sealed = found[0]["run_id"], found[0]["step"], found[0]["sha256"]

    def outcome(word: Literal["identical", "different", "not comparable"], detail: str = "",
                rebuilt: str | None = None) -> Rebuilt:
        return Rebuilt(batch_id=batch_id, run_id=run_id, step=step, outcome=word, sealed_sha256=sealed,
                       rebuilt_sha256=rebuilt, detail=detail)

    try:
        manifest = load_manifest(found[0]["manifest"], artifacts)
    except ArtifactError as wrong:
        return outcome("different", f"the manifest is damaged: {wrong}")
    if manifest.code_digest != code_digest():
        return outcome("not comparable", "it was sealed by other code or other libraries")
    built = build(run_id, step, manifest.spec, _manifest_before(manifest, lake, artifacts), lake=lake,
                  snapshot=manifest.snapshot)
    if built is None:
        return outcome("different", "the lake no longer holds enough episodes at the batch's snapshot")
    detail = _difference(manifest, built, sealed, artifacts) or _lake_difference(manifest, lake)
    return outcome("different" if detail else "identical", detail, built.manifest.batch.digest)


def _manifest_before(manifest: Manifest, lake: Lake, artifacts: ArtifactStore) -> Manifest | None:
    before = lake.sql(_BEFORE, manifest.snapshot, {"run": manifest.run_id, "step": manifest.step - 1}).to_pylist()
    return load_manifest(before[0]["manifest"], artifacts) if before else None


def _difference(manifest: Manifest, built: Built, sealed: str, artifacts: ArtifactStore) -> str:
    try:
        kept = artifacts.get(sealed)
    except ArtifactError as wrong:
        return f"the batch's file is damaged: {wrong}"
    for name, ours, theirs in (("row", built.manifest.rows, manifest.rows),
                               ("disposition", built.manifest.dispositions, manifest.dispositions)):
        if len(ours) != len(theirs):
            return f"{len(ours)} {name}s were built, {len(theirs)} were sealed"
        for index, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            if mine != other:
                return f"{name} {index} was built as {mine}, sealed as {other}"
    if kept != built.batch:
        return "tokens, logprobs or versions differ"
    if encode_manifest(built.manifest) != encode_manifest(manifest):
        return "the manifest differs outside of its rows"
    return ""


def _lake_difference(manifest: Manifest, lake: Lake) -> str:
    """The rows that users query, against those of the manifest."""
    shown = lake.sql(_ROWS, None, {"batch": manifest.batch_id}).to_pylist()
    sealed = [msgspec.structs.asdict(row) for row in manifest.rows]
    if len(shown) != len(sealed):
        return f"batch_rows has {len(shown)} rows, the manifest {len(sealed)}"
    for index, (row, meant) in enumerate(zip(shown, sealed, strict=True)):
        if row != meant:
            return f"row {index} is {row} in batch_rows, {meant} in the manifest"
    return ""
