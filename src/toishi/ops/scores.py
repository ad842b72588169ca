"""A judge's score as an expectation: the judge is a model, and its uncertainty about the score is a number too.

Decision: probability on anything that is no score (other tokens) is left out, and the share that was read is reported.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedScore:
    """mass: probability on the scores; most_likely: the score that a greedy judge writes; mean and std given a score."""

    mass: float
    most_likely: float
    mean: float
    std: float


def expected_score(points: Sequence[float], probabilities: Sequence[float]) -> ExpectedScore:
    """Mean and spread of the score under the judge's probabilities of the score tokens.

        mean = Σ_s P(s) · s / Σ_s P(s)        std² = Σ_s P(s) · (s - mean)² / Σ_s P(s)

    Raises ValueError for unequal lengths, a negative probability, or a mass outside (0, 1].

    >>> found = expected_score([6, 7, 8, 9], [0.05, 0.25, 0.55, 0.10])
    >>> found.most_likely, round(found.mean, 4), round(found.std, 4)
    (8, 7.7368, 0.7139)
    """
    mass = math.fsum(probabilities)
    if len(points) != len(probabilities) or min(probabilities, default=-1.0) < 0 or not 0 < mass <= 1 + 1e-9:
        raise ValueError(
            f"one probability >= 0 for each score, of sum in (0, 1]: got {len(points)} scores and "
            f"{len(probabilities)} probabilities of sum {mass:g}"
        )
    mean = math.fsum(s * p for s, p in zip(points, probabilities, strict=True)) / mass
    variance = math.fsum(p * (s - mean) ** 2 for s, p in zip(points, probabilities, strict=True)) / mass
    most_likely = max(zip(points, probabilities, strict=True), key=lambda pair: pair[1])[0]
    return ExpectedScore(mass=mass, most_likely=most_likely, mean=mean, std=math.sqrt(variance))
