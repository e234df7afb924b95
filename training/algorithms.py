"""The algorithms: small pure functions on the tokens that are trained.

Shapes: n tokens, v vocabulary entries. `log_probabilities` is [n, v], everything else [n]. Nothing here knows of
packing, minibatches or ranks; sums are divided by the number of tokens elsewhere.
"""

from __future__ import annotations

import torch
from torch import Tensor


def log_probabilities(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """Of every vocabulary entry, as the sampler saw them at its temperature."""
    return torch.log_softmax(logits.float() / temperature, dim=-1)


def token_logprobs(log_probabilities: Tensor, ids: Tensor) -> Tensor:
    return log_probabilities.gather(-1, ids.unsqueeze(-1)).squeeze(-1)


def entropy(log_probabilities: Tensor) -> Tensor:
    """Of the distribution at each token, in nats."""
    return -(log_probabilities.exp() * log_probabilities).sum(dim=-1)


def clipped_loss(logprobs: Tensor, behaviour: Tensor, advantages: Tensor, low: float, high: float) -> Tensor:
    """The GRPO loss of each token: the smaller of ratio and clipped ratio, times the advantage, negated.

    `behaviour` are the logprobs at sampling time; the ratio is clipped to [1 - low, 1 + high].
    """
    ratio = (logprobs - behaviour).exp()
    return -torch.minimum(ratio * advantages, ratio.clamp(1 - low, 1 + high) * advantages)


def clipped(logprobs: Tensor, behaviour: Tensor, advantages: Tensor, low: float, high: float) -> Tensor:
    """True where clipping stops the gradient."""
    ratio = (logprobs - behaviour).exp()
    return ((ratio < 1 - low) & (advantages < 0)) | ((ratio > 1 + high) & (advantages > 0))


def kl_k3(logprobs: Tensor, behaviour: Tensor) -> Tensor:
    """Estimate, never negative, of KL(behaviour || learner) from the sampled token: ratio - 1 - log ratio."""
    difference = logprobs - behaviour
    return difference.exp() - 1 - difference


def cross_entropy(logprobs: Tensor) -> Tensor:
    """The supervised loss of each token."""
    return -logprobs
