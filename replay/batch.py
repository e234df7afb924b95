"""Sealed batches built anew from the lake, and a plain answer for each: identical, different, or not comparable."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

import msgspec

from artifacts.store import ArtifactStore
from training.rebuild import rebuild

if TYPE_CHECKING:
    from lake.lake import Lake

_ALL = "select batch_id from batches order by sealed_at, run_id, step"


class BatchReport(msgspec.Struct, frozen=True, kw_only=True):
    """`detail` says where the first difference lies, or why nothing can be said."""

    batch_id: str
    run_id: str
    step: int
    result: Literal["identical", "different", "not comparable"]
    detail: str = ""


def rebuild_batches(lake: Lake, artifacts: ArtifactStore,
                    batch_ids: Sequence[str] | None = None) -> Iterator[BatchReport]:
    """Without ids: every batch that the lake holds, in the order in which they were sealed.

    Raises NotFoundError for an unknown batch.
    """
    ids = lake.sql(_ALL)["batch_id"].to_pylist() if batch_ids is None else batch_ids
    for batch_id in ids:
        built = rebuild(batch_id, lake=lake, artifacts=artifacts)
        detail = built.detail
        if not detail and built.outcome == "different":
            detail = f"sealed as {built.sealed_sha256}, built as {built.rebuilt_sha256}"
        yield BatchReport(batch_id=batch_id, run_id=built.run_id, step=built.step, result=built.outcome, detail=detail)
