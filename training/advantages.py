"""Group-normalised advantages, in float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

Deviation = Literal["sample", "population"]
EPSILON = 1e-4
"""Keeps a nearly constant group from blowing up; part of the recipe, so part of the batch's code digest."""


def group_advantages(rewards: Sequence[float], deviation: Deviation = "sample") -> np.ndarray:
    """(reward - mean) / (standard deviation + EPSILON) within one group of at least two.

    `sample` divides the squared differences by n - 1, `population` by n.
    """
    values = np.asarray(rewards, dtype=np.float64)
    spread = values.std(ddof=1 if deviation == "sample" else 0)
    advantages: np.ndarray = (values - values.mean()) / (spread + EPSILON)
    return advantages
