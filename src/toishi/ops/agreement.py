"""How far two or more raters agree, corrected for chance; the error rates of a judge that says yes or no.

Decisions:
1. A number that is not defined (kappa where nobody ever varies) is nan, never 0 or 1: neither would be true.
2. Categories of a weighted kappa are ranked, and distances are between ranks, as in the literature and in other libraries.
3. Krippendorff's alpha takes any number of raters and missing ratings (None); a unit that fewer than two rated is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from toishi.ops.stats import Interval, wilson

Numbers = Sequence[float] | NDArray[np.float64]
Level = Literal["nominal", "ordinal", "interval"]


def raw_agreement(first: Numbers, second: Numbers) -> float:
    """Share of items on which both raters say the same. Raises ValueError for unequal or no ratings.

    >>> raw_agreement([1, 1, 0, 0], [1, 0, 0, 0])
    0.75
    """
    a, b = _pair(first, second)
    return float((a == b).mean())


def cohen_kappa(
    first: Numbers, second: Numbers, *, weights: Literal["none", "quadratic"] = "none", categories: Numbers | None = None
) -> float:
    """Agreement of two raters beyond what their own frequencies would give by chance.

        kappa = (p_o - p_e) / (1 - p_e),   p_o = Σ_ij w_ij p_ij,   p_e = Σ_ij w_ij p_i. p_.j
        w_ij  = 1 where i = j, else 0;   quadratic: w_ij = 1 - (i - j)² / (K - 1)²,  i and j ranks of the K categories

    categories  all values that could have been said (default: those that were); matters for quadratic weights only
    nan when both raters only ever say one and the same thing. Raises ValueError for unequal or no ratings, and for a rating
    outside `categories`.

    Both say yes 20 times and no 15 times of 50, so p_o = .7 and p_e = .5:

    >>> said = [1] * 25 + [0] * 25
    >>> round(cohen_kappa(said, [1] * 20 + [0] * 5 + [1] * 10 + [0] * 15), 6)
    0.4
    """
    a, b = _pair(first, second)
    known = np.unique(np.concatenate([a, b]) if categories is None else np.asarray(categories, dtype=np.float64))
    places = [np.searchsorted(known, ratings) for ratings in (a, b)]
    for ratings, place in zip((a, b), places, strict=True):
        if not (known[np.minimum(place, len(known) - 1)] == ratings).all():
            raise ValueError(f"a rating is none of the categories {known.tolist()}; give all values that can be said")
    size = len(known)
    joint = np.bincount(places[0] * size + places[1], minlength=size * size).reshape(size, size) / len(a)
    # in distances: 1 - p_o and 1 - p_e, which is exact where both are tiny
    ranks = np.arange(size)
    gaps = np.subtract.outer(ranks, ranks).astype(np.float64)
    distances = (gaps != 0).astype(np.float64) if weights == "none" else gaps**2
    expected = (distances * np.outer(joint.sum(1), joint.sum(0))).sum()
    return float("nan") if expected == 0 else float(1 - (distances * joint).sum() / expected)


def krippendorff_alpha(units: Sequence[Sequence[float | None]], *, level: Level = "nominal") -> float:
    """Agreement of any number of raters: 1 - D_o / D_e, observed over expected disagreement.

    units  for each rated thing, one rating per rater; None = this rater did not rate it
    level  how far apart two values are: "nominal" (0 or 1), "ordinal" (how many ratings lie between), "interval" (squared
           difference)
    nan when fewer than two units have two ratings or all pairable ratings are the same. A value at or above .80 is usually
    called reliable, .667 to .80 tentative.

    >>> round(krippendorff_alpha([(1, 1), (2, 2), (1, 2), (None, 1)]), 4)
    0.4444
    """
    rated = [[float(value) for value in unit if value is not None] for unit in units]
    pairable = [unit for unit in rated if len(unit) > 1]
    if len(pairable) < 2:
        return float("nan")
    if level == "interval":
        return _interval_alpha(pairable)
    values = np.unique(np.concatenate([np.asarray(unit) for unit in pairable]))
    coincidences = np.zeros((len(values), len(values)))
    for unit in pairable:
        counts = np.bincount(np.searchsorted(values, unit), minlength=len(values)).astype(np.float64)
        coincidences += (np.outer(counts, counts) - np.diag(counts)) / (len(unit) - 1)
    totals = coincidences.sum(1)
    distances = _DISTANCES[level](values, totals)
    expected = (distances * (np.outer(totals, totals) - np.diag(totals))).sum() / (totals.sum() - 1)
    return float("nan") if expected == 0 else float(1 - (distances * coincidences).sum() / expected)


def _nominal(values: NDArray[np.float64], totals: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1.0 - np.eye(len(values))


def _interval_alpha(units: Sequence[Sequence[float]]) -> float:
    """The same for squared differences, whose sums follow from squares around means; any number of distinct values."""
    everything = np.concatenate([np.asarray(unit) for unit in units])
    if everything.min() == everything.max():
        return float("nan")
    observed = sum(len(unit) / (len(unit) - 1) * float(np.var(unit)) * len(unit) for unit in units) / len(everything)
    return 1 - observed / float(np.var(everything, ddof=1))


def _ordinal(values: NDArray[np.float64], totals: NDArray[np.float64]) -> NDArray[np.float64]:
    """(ratings from one value to the other, both ends counted half)²."""
    middles = np.cumsum(totals) - totals / 2
    gaps: NDArray[np.float64] = np.subtract.outer(middles, middles) ** 2
    return gaps


_Distances = Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]
_DISTANCES: dict[str, _Distances] = {"nominal": _nominal, "ordinal": _ordinal}


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRates:
    """The mistakes of a yes-or-no judge.

    false_positive  share of the wrong answers that it calls right; None without wrong answers
    false_negative  share of the right answers that it calls wrong; None without right answers
    youden_j        1 - false_positive - false_negative: 1 = never wrong, 0 = guessing, below 0 = worse than guessing
    """

    false_positive: Interval | None
    false_negative: Interval | None
    youden_j: Interval | None


def error_rates(said: Sequence[bool], truth: Sequence[bool], *, confidence: float = 0.95) -> ErrorRates:
    """False-positive rate, false-negative rate and J = 1 - FPR - FNR, with intervals for independent items.

    The shares have Wilson's interval. J is a difference of two independent shares, (1 - FNR) - FPR, and has Newcombe's, which
    joins the two of Wilson. Raises ValueError for unequal lengths.

    >>> rates = error_rates([True, True, False, False, True], [True, True, True, False, False])
    >>> print(rates.false_positive, rates.false_negative)
    0.500 [0.095, 0.905] 0.333 [0.061, 0.792]
    >>> round(rates.youden_j.value, 6)
    0.166667
    """
    if len(said) != len(truth):
        raise ValueError(f"error rates need one verdict for each truth, got {len(said)} and {len(truth)}")
    pairs = [(bool(verdict), bool(right)) for verdict, right in zip(said, truth, strict=True)]
    on_wrong = [verdict for verdict, right in pairs if not right]
    on_right = [verdict for verdict, right in pairs if right]
    positive = wilson(sum(on_wrong), len(on_wrong), confidence=confidence) if on_wrong else None
    hits = wilson(sum(on_right), len(on_right), confidence=confidence) if on_right else None
    negative = None if hits is None else Interval(1 - hits.value, 1 - hits.high, 1 - hits.low)
    return ErrorRates(
        false_positive=positive,
        false_negative=negative,
        youden_j=None if positive is None or hits is None else _difference(hits, positive),
    )


def _difference(first: Interval, second: Interval) -> Interval:
    """Newcombe's interval of first - second (Statistics in Medicine 17, 1998, method 10)."""
    value = first.value - second.value
    below = math.hypot(first.value - first.low, second.high - second.value)
    above = math.hypot(first.high - first.value, second.value - second.low)
    return Interval(value, value - below, value + above)


def _pair(first: Numbers, second: Numbers) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if a.shape != b.shape or a.size == 0:
        raise ValueError(f"agreement needs the same items rated twice, got {a.size} and {b.size} ratings")
    return a, b
