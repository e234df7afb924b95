"""BatchSpec: how the batches of a run are chosen, packed and trained on. Stored whole in every batch's manifest.

The learner reads its hyperparameters from there and from nowhere else, so a manifest says all that made a step.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from schemas.errors import ConfigError
from schemas.settings import Settings


class Optimization(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """AdamW and its learning rate."""

    learning_rate: float
    warmup_steps: int
    """Batches (GRPO) or optimizer steps (supervised) over which the learning rate rises."""
    decay_to: float
    """Fraction of the learning rate that is left at the end."""
    weight_decay: float
    beta1: float = 0.9
    beta2: float = 0.95
    epsilon: float = 1e-8
    gradient_clip: float = 1.0


RECIPES = {
    "grpo": Optimization(learning_rate=3e-4, warmup_steps=3, decay_to=0.3, weight_decay=0.0),
    "sft": Optimization(learning_rate=2e-3, warmup_steps=20, decay_to=0.1, weight_decay=0.01),
}
"""What was seen to learn, by algorithm."""


class BatchSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Defaults are the recipe that was seen to learn."""

    algorithm: Literal["grpo", "sft"] = "grpo"
    seed: int = 0

    # Which episodes a GRPO batch takes.
    groups: int = 16
    group_size: int = 8
    """Members of a group; more requested ones are surplus."""
    max_staleness: int = 1
    """Largest distance between the version being trained and the oldest one that sampled a token."""
    group_timeout_s: float = 900.0
    """Event time after which an incomplete group closes with what it has."""
    deviation: Literal["sample", "population"] = "sample"
    """The standard deviation by which advantages are divided: of n - 1 or n."""
    shuffle_rewards: bool = False
    """The control: advantages of rewards dealt out at random within the batch. Nothing can be learned from it."""

    # Which episodes a supervised batch takes.
    episodes: int = 4000
    policy: str = ""
    """Only episodes whose policy starts with this."""

    # How the batch is laid out.
    sequence_length: int = 192
    """Tokens of a packed row; a longer sequence is masked, never cut."""
    minibatches: int = 2
    """Optimizer steps of one GRPO batch: each sequence is in exactly one."""
    rows_per_microbatch: int = 16

    # How it is trained on.
    optimization: Optimization = None  # type: ignore[assignment]
    """Left out: the algorithm's recipe."""
    total_steps: int = 60
    """GRPO: batches of the whole run, for the learning rate."""
    clip_low: float = 0.2
    clip_high: float = 0.28
    temperature: float = 1.0
    """Of the sampler, so that the learner's logprobs are of the same distribution."""
    optimizer_steps: int = 700
    """Supervised: over the one batch."""
    sequences_per_minibatch: int = 16
    """Supervised."""

    def __post_init__(self) -> None:
        if self.optimization is None:
            msgspec.structs.force_setattr(self, "optimization", RECIPES[self.algorithm])
        for name in _POSITIVE:
            if getattr(self, name) <= 0:
                raise ConfigError(f"`{name}` of a batch must be positive", value=getattr(self, name))
        if self.algorithm == "grpo" and self.group_size < 2:
            raise ConfigError("a group needs at least two members to have an advantage", value=self.group_size)


def first_spec(settings: Settings) -> BatchSpec:
    """Of a run that has no batch yet, where nobody says otherwise; later batches are made as the one before."""
    return BatchSpec(max_staleness=settings.batch_max_staleness, group_timeout_s=settings.batch_group_timeout_s)


_POSITIVE = (
    "groups", "episodes", "sequence_length", "minibatches", "rows_per_microbatch", "total_steps", "temperature",
    "optimizer_steps", "sequences_per_minibatch")
