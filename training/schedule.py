"""The learning rate and the order of supervised minibatches: pure functions of the spec, so a restart repeats them."""

from __future__ import annotations

import random
from collections.abc import Sequence

from training.spec import BatchSpec

_POOL_MINIBATCHES = 16
"""Minibatches drawn together, so that sequences of like length share one."""


def learning_rate(spec: BatchSpec, index: int) -> float:
    """Of batch `index` of a run (GRPO), or of optimizer step `index` of a batch (supervised).

    Rises over `warmup_steps`, and falls linearly. GRPO reaches `decay_to` at `total_steps`; the supervised rate is
    headed for zero at `optimizer_steps` and held at `decay_to`.
    """
    recipe = spec.optimization
    rising = min(1.0, (index + 1) / recipe.warmup_steps) if recipe.warmup_steps else 1.0
    if spec.algorithm == "sft":
        falling = max(recipe.decay_to, 1 - index / spec.optimizer_steps)
    else:
        falling = 1 - (1 - recipe.decay_to) * min(1.0, index / spec.total_steps)
    return recipe.learning_rate * rising * falling


def supervised_plan(lengths: Sequence[int], spec: BatchSpec) -> list[list[int]]:
    """Which sequences each optimizer step of a supervised batch takes: `optimizer_steps` lists of indices."""
    size = min(spec.sequences_per_minibatch, len(lengths))
    pool_size = min(_POOL_MINIBATCHES * size, len(lengths) // size * size)
    chance = random.Random(spec.seed)
    plan: list[list[int]] = []
    while len(plan) < spec.optimizer_steps:
        pool = sorted(chance.sample(range(len(lengths)), pool_size), key=lambda index: (lengths[index], index))
        drawn = [pool[start:start + size] for start in range(0, pool_size, size)]
        chance.shuffle(drawn)
        plan.extend(drawn)
    return plan[:spec.optimizer_steps]
