"""How much of what comes was known beforehand."""

from __future__ import annotations

import math
from collections.abc import Sequence


def explained_variance(values: Sequence[float], returns: Sequence[float]) -> float | None:
    """Share of the returns' spread that the values know beforehand: 1 - Var(R - V) / Var(R).

    1 for a perfect critic, 0 for one that says the same of every text, below 0 for one that is worse than that. None where all
    returns are equal.

    >>> explained_variance([0.0, 0.5], [0.0, 1.0]), explained_variance([3.0, 3.0], [0.0, 1.0]), explained_variance([1.0], [1.0])
    (0.75, 0.0, None)
    """
    whole = _variance(returns)
    if whole == 0.0:
        return None
    return 1.0 - _variance([target - value for value, target in zip(values, returns, strict=True)]) / whole


def _variance(numbers: Sequence[float]) -> float:
    if not numbers:
        return 0.0
    mean = math.fsum(numbers) / len(numbers)
    return math.fsum((number - mean) ** 2 for number in numbers) / len(numbers)
