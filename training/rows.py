"""Packed rows as tensors: what the model takes in one forward pass.

Sequences of a row do not see each other: the mask is causal within each of them. Where a token is predicted is one
position before where it stands, and the first token of a sequence is never predicted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from training.batch_file import Tokens

Row = list[Tokens]


class Microbatch(NamedTuple):
    """b rows of length s; n trained tokens."""

    ids: Tensor
    """[b, s] int64."""
    positions: Tensor
    """[b, s] int64, counted from the start of each sequence."""
    mask: Tensor
    """[b, 1, s, s] bool, True where attention is forbidden."""
    where: Tensor
    """[n] int64: flat positions in [b * s] whose output predicts a trained token."""
    targets: Tensor
    """[n] int64: the trained tokens."""
    behaviour: Tensor
    """[n] float32."""
    advantages: Tensor
    """[n] float32."""
    fresh: Tensor
    """[n] bool: sampled by the version that is being trained."""


def rows_of(sequences: Iterable[Tokens]) -> list[Row]:
    """Group the sequences of a batch into their packed rows; rows without a trained token are left out."""
    ordered = sorted(sequences, key=lambda tokens: (tokens.sequence, tokens.position))
    rows = [list(row) for _, row in groupby(ordered, key=lambda tokens: tokens.sequence)]
    return [row for row in rows if any(tokens.trained.any() for tokens in row)]


def collate(rows: Sequence[Row], version: int, device: torch.device) -> Microbatch:
    length = max((tokens.position + len(tokens.ids) for row in rows for tokens in row), default=1)
    shape = (max(len(rows), 1), length)
    ids, positions = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    owner = np.full(shape, -1, np.int64)
    trained, behaviour = np.zeros(shape, bool), np.zeros(shape, np.float32)
    advantages, versions = np.zeros(shape, np.float32), np.full(shape, -1, np.int64)
    for index, row in enumerate(rows):
        for number, tokens in enumerate(row):
            place = index, slice(tokens.position, tokens.position + len(tokens.ids))
            ids[place], positions[place], owner[place] = tokens.ids, np.arange(len(tokens.ids)), number
            trained[place], behaviour[place] = tokens.trained, tokens.logprobs
            advantages[place], versions[place] = tokens.advantage, tokens.versions
            trained[index, tokens.position] = False
    predicted = np.flatnonzero(trained)

    def picked(values: np.ndarray) -> Tensor:
        return torch.from_numpy(values.reshape(-1)[predicted]).to(device)

    return Microbatch(
        torch.from_numpy(ids).to(device), torch.from_numpy(positions).to(device), _mask(owner, device),
        torch.from_numpy(predicted - 1).to(device), picked(ids), picked(behaviour), picked(advantages),
        picked(versions == version))


def _mask(owner: np.ndarray, device: torch.device) -> Tensor:
    """Causal, and blind to other sequences. Padding sees itself, so that no row of the softmax is empty."""
    owners = torch.from_numpy(owner).to(device)
    length = owners.shape[1]
    later = torch.ones(length, length, dtype=torch.bool, device=device).triu(1)
    foreign = owners.unsqueeze(2) != owners.unsqueeze(1)
    return (foreign | later).unsqueeze(1)
