"""pass@k: the chance that at least one of k samples is right, estimated without bias from n samples of which c were."""

from __future__ import annotations

import math
from collections.abc import Iterable

from schemas.errors import ConfigError


def pass_at_k(n: int, c: int, k: int) -> float:
    """1 - C(n-c, k) / C(n, k). Raises ConfigError where that is not defined."""
    if not 0 <= c <= n or not 1 <= k <= n:
        raise ConfigError("pass@k needs 0 <= c <= n and 1 <= k <= n", value=f"n={n}, c={c}, k={k}",
                          hint="take more samples of each task, or a smaller k")
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def mean_pass_at_k(tasks: Iterable[tuple[int, int]], k: int) -> float:
    """Over tasks, each with its samples and how many of them were right."""
    each = [pass_at_k(n, c, k) for n, c in tasks]
    if not each:
        raise ConfigError("pass@k of no tasks", value=k)
    return math.fsum(each) / len(each)
