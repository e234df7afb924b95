"""Sampling a token for every row of a batch, and the logprob of what was sampled.

Logprobs are those of the distribution that was sampled from: after temperature, top_k and top_p, renormalised. With
`top_k=0, top_p=1` that is the tempered softmax over the whole vocabulary, which a trainer can compute again.
Temperature 0 takes the likeliest token; its logprob is 0, since nothing else could have come.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch
from torch import Tensor

from schemas.events import Sampling

_NEG = float("-inf")


def dice(sampling: Sampling, task_id: str, sample_index: int, turn: int) -> random.Random:
    """The random numbers of one turn: the same for the same seed, task, sample and turn, whoever is in the batch."""
    return random.Random(f"{sampling.seed}/{task_id}/{sample_index}/{turn}")


def sample(logits: Tensor, samplings: Sequence[Sampling], uniforms: Sequence[float]) -> tuple[list[int], list[float]]:
    """One token a row by inversion of the cumulative distribution at the row's uniform number."""
    temperatures = torch.tensor([sampling.temperature or 1.0 for sampling in samplings])
    scaled = logits / temperatures[:, None]
    _truncate(scaled, samplings)
    logprobs = torch.log_softmax(scaled, -1)
    cumulative = logprobs.double().exp().cumsum(-1)
    draws = torch.tensor(uniforms, dtype=torch.float64)[:, None] * cumulative[:, -1:]
    tokens = torch.searchsorted(cumulative, draws, right=True).squeeze(-1).clamp_(max=logits.shape[-1] - 1)
    chosen = logprobs.gather(-1, tokens[:, None]).squeeze(-1)
    greedy = [row for row, sampling in enumerate(samplings) if sampling.temperature == 0]
    if greedy:
        tokens[greedy], chosen[greedy] = logits[greedy].argmax(-1), 0.0
    return tokens.tolist(), chosen.tolist()


def _truncate(scaled: Tensor, samplings: Sequence[Sampling]) -> None:
    for row, sampling in enumerate(samplings):
        if 0 < sampling.top_k < scaled.shape[-1]:
            smallest = scaled[row].topk(sampling.top_k).values[-1]
            scaled[row].masked_fill_(scaled[row] < smallest, _NEG)
        if sampling.top_p < 1:
            ordered, order = scaled[row].softmax(-1).sort(descending=True)
            beyond = ordered.cumsum(-1) - ordered >= sampling.top_p
            scaled[row].index_fill_(0, order[beyond], _NEG)
