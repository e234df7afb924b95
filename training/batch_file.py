"""The batch as bytes: one Arrow IPC file, one row for each training sequence, columns and order fixed.

Equal rows give equal bytes: nothing in the file depends on time, machine or dictionary order.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from schemas.errors import TrainingError

MEDIA_TYPE = "application/vnd.apache.arrow.file"
SCHEMA = pa.schema([
    ("sequence", pa.int32()), ("position", pa.int32()), ("minibatch", pa.int32()), ("episode_id", pa.string()),
    ("segment", pa.int32()), ("ids", pa.list_(pa.int32())), ("trained", pa.list_(pa.bool_())),
    ("logprobs", pa.list_(pa.float32())), ("versions", pa.list_(pa.int32())), ("reward", pa.float64()),
    ("advantage", pa.float64()),
])


class BatchRow(NamedTuple):
    """One training sequence. `sequence` is the packed row it lies in, `position` where it starts there."""

    sequence: int
    position: int
    minibatch: int
    episode_id: str
    segment: int
    ids: Sequence[int]
    trained: Sequence[bool]
    """True where the token enters the loss: the policy sampled it and no rule masks it."""
    logprobs: Sequence[float | None]
    """Behaviour logprobs; null where none is known or the token is not trained."""
    versions: Sequence[int]
    """Weight version that sampled the token; -1 elsewhere."""
    reward: float | None
    advantage: float | None


class Tokens(NamedTuple):
    """One training sequence as arrays, as the learner takes it."""

    sequence: int
    position: int
    minibatch: int
    ids: np.ndarray
    trained: np.ndarray
    logprobs: np.ndarray
    """Zero where `trained` is False or no logprob is known."""
    versions: np.ndarray
    advantage: float


def encode_batch(rows: Sequence[BatchRow]) -> bytes:
    columns = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)
    arrays = [pa.array(list(column), field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, SCHEMA) as writer:
        writer.write_batch(pa.record_batch(arrays, schema=SCHEMA))
    return bytes(sink.getvalue())


def decode_batch(data: bytes) -> list[Tokens]:
    """The sequences of a batch. Raises TrainingError if these are not the bytes of one."""
    try:
        table = pa.ipc.open_file(pa.BufferReader(data)).read_all()
    except pa.ArrowInvalid as wrong:
        raise TrainingError(f"batch is not an Arrow file ({wrong})") from None
    if table.schema != SCHEMA:
        raise TrainingError("batch has other columns than this release writes", value=table.schema.names)
    columns = {name: table[name].combine_chunks() for name in SCHEMA.names}
    lists = [_split(columns[name]) for name in ("ids", "trained", "logprobs", "versions")]
    plain = [columns[name].to_pylist() for name in ("sequence", "position", "minibatch")]
    advantages = [advantage or 0.0 for advantage in columns["advantage"].to_pylist()]
    return [Tokens(*row) for row in zip(*plain, *lists, advantages, strict=True)]


def _split(column: pa.ListArray) -> list[np.ndarray]:
    offsets = column.offsets.to_numpy()
    values = column.values
    if values.null_count:
        values = values.fill_null(0)
    flat = values.to_numpy(zero_copy_only=False)
    return [flat[start:end] for start, end in pairwise(offsets)]
