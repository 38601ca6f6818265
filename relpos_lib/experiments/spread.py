"""What several seeds say together: a mean with its spread, and who is better."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from typing import Any

LEVEL = 0.05  # what a permutation test must fall below


def spread(each: Sequence[float]) -> dict[str, Any]:
    """Mean, standard deviation, ends and values of a sample, rounded for JSON."""
    return {
        "mean": round(statistics.fmean(each), 5),
        "std": round(statistics.stdev(each), 5) if len(each) > 1 else 0.0,
        "low": round(min(each), 5),
        "high": round(max(each), 5),
        "each": [round(value, 5) for value in each],
    }


def compare(first: Sequence[float], second: Sequence[float]) -> str:
    """Whether two samples differ by more than the choice of seeds explains.

    An exact permutation test of the difference of means, two-sided, at 0.05. With
    fewer than four values each no difference can pass it.

    Args:
        first: a value a seed.
        second: a value a seed.

    Returns:
        "higher" or "lower" if the first one is, else "tie".

    >>> compare([0.9, 0.8, 0.9, 1.0], [0.1, 0.2, 0.1, 0.3])
    'higher'
    >>> compare([0.9, 0.1], [0.2, 0.3])
    'tie'
    """
    both = [*first, *second]
    difference = statistics.fmean(first) - statistics.fmean(second)
    total, n, m = math.fsum(both), len(first), len(second)
    splits = as_extreme = 0
    for chosen in itertools.combinations(both, n):
        own = math.fsum(chosen)
        splits += 1
        as_extreme += abs(own / n - (total - own) / m) >= abs(difference) - 1e-12
    if as_extreme / splits >= LEVEL:
        return "tie"
    return "higher" if difference > 0 else "lower"
