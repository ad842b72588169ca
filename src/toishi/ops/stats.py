"""Measurements with intervals.

Decisions:
1. The prompt is the unit: samples of one prompt are not independent, so bootstraps draw prompts, and a prompt's value is
   the mean of its samples.
2. Two measurements on the same prompts are compared by their paired difference.
3. Intervals are percentile bootstraps from a key-derived stream: same numbers in, same interval out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from toishi.ops.random import uniforms

_RESAMPLES_PER_BLOCK = 1000


def calibration_error(beliefs: Sequence[float], right: Sequence[float], num_bins: int = 10) -> float:
    """How far stated probabilities are from how often they come true, by bins of equal width over [0, 1]:

        Σ_bins (n_bin / n) |mean right - mean belief|

    (the expected calibration error of arXiv 1706.04599). Zero for beliefs that can be taken at their word.

    >>> round(calibration_error([0.9, 0.9, 0.6, 0.6], [1.0, 1.0, 1.0, 0.0]), 6)
    0.1
    """
    bins: dict[int, list[tuple[float, float]]] = {}
    for belief, is_right in zip(beliefs, right, strict=True):
        bins.setdefault(min(int(belief * num_bins), num_bins - 1), []).append((belief, is_right))
    gaps = (abs(math.fsum(is_right - belief for belief, is_right in inside)) for inside in bins.values())
    return math.fsum(gaps) / len(beliefs)


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with the bounds of its interval.

    >>> str(Interval(0.5, 0.4, 0.6))
    '0.500 [0.400, 0.600]'
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"

    def overlaps(self, other: Interval) -> bool:
        """Whether the two share a point.

        >>> Interval(0.5, 0.4, 0.6).overlaps(Interval(0.7, 0.61, 0.8))
        False
        """
        return self.low <= other.high and other.low <= self.high


def pass_at_k(num_samples: int, num_correct: int, k: int) -> float:
    """Chance that at least one of k samples is right, unbiased from n >= k samples (arXiv 2107.03374).

        pass@k = 1 - C(n-c, k) / C(n, k) = 1 - Π_{i=n-c+1}^{n} (1 - k/i)

    Raises ValueError unless 0 <= num_correct <= num_samples and 1 <= k <= num_samples.

    >>> round(pass_at_k(4, 2, 2), 6)
    0.833333
    >>> pass_at_k(4, 2, 3)
    1.0
    """
    if not 0 <= num_correct <= num_samples or not 1 <= k <= num_samples:
        raise ValueError(
            f"pass@{k} from {num_correct} right of {num_samples} samples: needs 0 <= right <= samples and 1 <= k <= samples; "
            "draw more samples or ask for a smaller k"
        )
    if num_samples - num_correct < k:
        return 1.0
    return 1.0 - math.prod(1.0 - k / i for i in range(num_samples - num_correct + 1, num_samples + 1))


def mean_interval(
    values: Sequence[float], *, key: tuple[int, ...] = (0,), confidence: float = 0.95, resamples: int = 10_000
) -> Interval:
    """Mean over prompts with a bootstrap interval; `values` holds one number per prompt.

    Raises ValueError without values.

    >>> mean_interval([0.0, 1.0] * 50)
    Interval(value=0.5, low=0.41, high=0.6)
    """
    if len(values) == 0:
        raise ValueError("an interval needs at least one value, got none")
    array = np.asarray(values, dtype=np.float64)
    tail = (1 - confidence) / 2
    low, high = np.quantile(_bootstrap_means(array, key, resamples), [tail, 1 - tail])
    return Interval(float(array.mean()), float(low), float(high))


def paired_difference(
    after: Sequence[float],
    before: Sequence[float],
    *,
    key: tuple[int, ...] = (0,),
    confidence: float = 0.95,
    resamples: int = 10_000,
) -> Interval:
    """Mean of `after - before` over the same prompts in the same order, with a bootstrap interval.

    Raises ValueError for unequal lengths.

    >>> paired_difference([0.75, 0.5, 1.0], [0.5, 0.25, 0.75])
    Interval(value=0.25, low=0.25, high=0.25)
    """
    if len(after) != len(before):
        raise ValueError(f"a paired difference needs the same prompts twice, got {len(after)} after and {len(before)} before")
    differences = [second - first for first, second in zip(before, after, strict=True)]
    return mean_interval(differences, key=key, confidence=confidence, resamples=resamples)


def wilson(successes: int, trials: int, *, confidence: float = 0.95) -> Interval:
    """A share with Wilson's score interval, for independent trials. Never leaves [0, 1], sensible at 0 and at all.

    Raises ValueError unless 0 <= successes <= trials and trials >= 1.

    >>> print(wilson(0, 10))
    0.000 [0.000, 0.278]
    """
    if not 0 <= successes <= trials or trials < 1:
        raise ValueError(f"a share needs 0 <= successes <= trials and trials >= 1, got {successes} of {trials}")
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    share, factor = successes / trials, 1 + z**2 / trials
    centre = (share + z**2 / (2 * trials)) / factor
    half = z * math.sqrt(share * (1 - share) / trials + z**2 / (4 * trials**2)) / factor
    return Interval(share, max(0.0, centre - half), min(1.0, centre + half))


def _bootstrap_means(values: NDArray[np.float64], key: tuple[int, ...], resamples: int) -> NDArray[np.float64]:
    size = len(values)
    means = []
    for start in range(0, resamples, _RESAMPLES_PER_BLOCK):
        count = min(_RESAMPLES_PER_BLOCK, resamples - start)
        draws = uniforms((*key, start), count * size).reshape(count, size)
        chosen = np.minimum((draws * size).astype(np.int64), size - 1)  # the product may round up to size
        means.append(values[chosen].mean(axis=1))
    return np.concatenate(means)
