"""How far scores and labels go together: correlations, AUC, calibration; and the bootstrap that gives any of them an interval.

Decisions:
1. A number that is not defined (a correlation with something that never varies) is nan, never 0.
2. The bootstrap draws prompts, since answers to one prompt are not independent (as in `ops.stats`). Draws in which the number
   is not defined are left out; when they are the majority there is no interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from toishi.ops.agreement import Numbers
from toishi.ops.random import uniforms
from toishi.ops.stats import Interval

Array = NDArray[np.float64]


def pearson(x: Numbers, y: Numbers) -> float:
    """Linear correlation; nan when either never varies or there are fewer than two pairs.

    >>> round(pearson([1, 2, 3], [2, 4, 7]), 4)
    0.9934
    """
    a, b = _arrays(x, y)
    if len(a) < 2 or (a == a[0]).all() or (b == b[0]).all():
        return float("nan")
    a, b = a - a.mean(), b - b.mean()
    return float(np.clip((a @ b) / math.sqrt((a @ a) * (b @ b)), -1.0, 1.0))


def spearman(x: Numbers, y: Numbers) -> float:
    """Correlation of ranks, ties sharing the mean of theirs.

    >>> spearman([1, 2, 30], [1, 4, 5])
    1.0
    """
    a, b = _arrays(x, y)
    return pearson(ranks(a), ranks(b))


def partial_spearman(x: Numbers, y: Numbers, given: Numbers) -> float:
    """Rank correlation of x and y beyond what both share with a third: (r_xy - r_xz r_yz) / sqrt((1 - r_xz²)(1 - r_yz²)).

    nan when x or y follows from the third alone. Where the third never varies, the plain rank correlation.

    >>> round(partial_spearman([1, 2, 3, 4, 5], [2, 1, 4, 3, 5], [1, 2, 3, 5, 4]), 4)
    0.7456
    """
    third = np.asarray(given, dtype=np.float64)
    r_xy = spearman(x, y)
    if len(third) and (third == third[0]).all():
        return r_xy
    r_xz, r_yz = spearman(x, third), spearman(y, third)
    left = (1 - r_xz**2) * (1 - r_yz**2)
    return (r_xy - r_xz * r_yz) / math.sqrt(left) if left > 1e-12 else float("nan")


def kendall(x: Numbers, y: Numbers) -> float:
    """Kendall's tau-b: concordant minus discordant pairs, over the pairs that are not tied.

    >>> round(kendall([1, 2, 3, 4], [1, 3, 2, 4]), 4)
    0.6667
    """
    a, b = _arrays(x, y)
    upper = np.triu_indices(len(a), 1)
    signs_x, signs_y = (np.sign(np.subtract.outer(values, values)[upper]) for values in (a, b))
    untied = float(np.count_nonzero(signs_x)) * float(np.count_nonzero(signs_y))
    return float((signs_x * signs_y).sum() / math.sqrt(untied)) if untied else float("nan")


def auc(scores: Numbers, truth: Numbers) -> float:
    """Chance that a right answer scores above a wrong one, ties counting half. nan without both kinds.

    >>> auc([0.9, 0.4, 0.4, 0.1], [1, 1, 0, 0])
    0.875
    """
    a, b = _arrays(scores, truth)
    right = b > 0
    wins, losses = int(right.sum()), int((~right).sum())
    if not wins or not losses:
        return float("nan")
    return float((ranks(a)[right].sum() - wins * (wins + 1) / 2) / (wins * losses))


def calibration_error(probabilities: Numbers, truth: Numbers, *, bins: int = 10) -> float:
    """Expected calibration error: mean distance of stated probability and share of right answers, over bins of equal width.

        ECE = Σ_b n_b / n · |mean probability of bin b - share right in bin b|

    Raises ValueError for a probability outside [0, 1].

    >>> round(calibration_error([0.9, 0.9, 0.1, 0.1], [1, 0, 0, 0]), 6)
    0.25
    """
    a, b = _arrays(probabilities, truth)
    if ((a < 0) | (a > 1)).any():
        raise ValueError("calibration needs probabilities between 0 and 1; scale the scores first")
    places = np.minimum((a * bins).astype(np.int64), bins - 1)
    gaps = np.bincount(places, weights=a - b, minlength=bins)
    return float(np.abs(gaps).sum() / len(a))


def isotonic(scores: Numbers, truth: Numbers) -> tuple[tuple[float, float], ...]:
    """The non-decreasing map from score to share of right answers with the least squared error, by pooling neighbours.

    One (score, probability) for each distinct score, in order.

    >>> isotonic([1, 2, 3, 4], [0, 1, 0, 1])
    ((1.0, 0.0), (2.0, 0.5), (3.0, 0.5), (4.0, 1.0))
    """
    a, b = _arrays(scores, truth)
    values, places = np.unique(a, return_inverse=True)
    sums, counts = np.bincount(places, weights=b), np.bincount(places)
    blocks: list[tuple[float, int, int]] = []  # (sum, weight, number of distinct scores)
    for total, count in zip(sums.tolist(), counts.tolist(), strict=True):
        blocks.append((total, count, 1))
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] >= blocks[-1][0] / blocks[-1][1]:
            last, before = blocks.pop(), blocks.pop()
            blocks.append((before[0] + last[0], before[1] + last[1], before[2] + last[2]))
    fitted = [total / count for total, count, width in blocks for _ in range(width)]
    return tuple(zip(values.tolist(), fitted, strict=True))


def ranks(values: Array) -> Array:
    """Ranks from 1, ties sharing the mean of theirs.

    >>> ranks(np.array([5.0, 1.0, 5.0])).tolist()
    [2.5, 1.0, 2.5]
    """
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    means: Array = (last - (counts - 1) / 2)[places]
    return means


def bootstrap(
    statistic: Callable[[NDArray[np.int64]], float],
    clusters: Sequence[Hashable],
    *,
    key: tuple[int, ...] = (0,),
    confidence: float = 0.95,
    resamples: int = 500,
) -> Interval:
    """A number computed from items, with a percentile bootstrap interval over clusters of items.

    statistic  the number for the items of these indices
    clusters   which cluster (prompt) each item belongs to
    Bounds are nan when there is one cluster, or when the number is not defined in most draws. Raises ValueError without items.

    >>> values = np.array([0.0, 1.0] * 50)
    >>> str(bootstrap(lambda items: float(values[items].mean()), range(100)))
    '0.500 [0.390, 0.600]'
    """
    if not clusters:
        raise ValueError("a bootstrap needs at least one item, got none")
    members: dict[Hashable, list[int]] = {}
    for item, cluster in enumerate(clusters):
        members.setdefault(cluster, []).append(item)
    groups = [np.asarray(items, dtype=np.int64) for items in members.values()]
    value, size = statistic(np.arange(len(clusters))), len(groups)
    if size == 1:
        return Interval(value, float("nan"), float("nan"))
    draws = np.minimum((uniforms(key, resamples * size) * size).astype(np.int64), size - 1).reshape(resamples, size)
    alone = len(clusters) == size
    found = np.asarray([statistic(draw if alone else np.concatenate([groups[place] for place in draw])) for draw in draws])
    found = found[np.isfinite(found)]
    if 2 * len(found) < resamples:
        return Interval(value, float("nan"), float("nan"))
    low, high = np.quantile(found, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(value, float(low), float(high))


def _arrays(x: Numbers, y: Numbers) -> tuple[Array, Array]:
    a, b = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if a.shape != b.shape:
        raise ValueError(f"two lists of the same items are needed, got {a.size} and {b.size} values")
    return a, b
