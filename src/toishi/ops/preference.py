"""Losses of pairs: the better of two answers against the worse one. Plain numbers, a pair at a time.

c and r are log π(y) - log π_ref(y) of the chosen and the rejected answer, summed over their tokens, or the scores that a reward
model gives them; h = β (c - r) - m, with m how far apart the two are to be at least.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PairLoss:
    """The loss of one pair, and its derivatives by the log-prob of a token of either answer, or by its score."""

    loss: float
    by_chosen: float
    by_rejected: float


def sigmoid_loss(
    chosen: float,
    rejected: float,
    num_chosen: int,
    num_rejected: int,
    beta: float,
    label_smoothing: float,
    margin: float = 0.0,
) -> PairLoss:
    """DPO (arXiv 2305.18290): `-(1 - ε) log σ(h) - ε log σ(-h)`, d loss / d c = -β ((1 - ε) σ(-h) - ε σ(h)) = -d loss / d r.

    ε is the probability that the label is wrong (cDPO); the lengths do not matter. With β = 1 and scores in the place of
    log-ratios it is the likelihood of Bradley and Terry's model, from which reward models are learned (arXiv 2203.02155).

    >>> found = sigmoid_loss(0.0, 0.0, 3, 5, beta=0.1, label_smoothing=0.0)
    >>> round(found.loss, 6), found.by_chosen, found.by_rejected
    (0.693147, -0.05, 0.05)
    """
    h = beta * (chosen - rejected) - margin
    loss = (1 - label_smoothing) * softplus(-h) + label_smoothing * softplus(h)
    slope = -beta * ((1 - label_smoothing) * sigmoid(-h) - label_smoothing * sigmoid(h))
    return PairLoss(loss, slope, -slope)


def ipo_loss(
    chosen: float,
    rejected: float,
    num_chosen: int,
    num_rejected: int,
    beta: float,
    label_smoothing: float,
    margin: float = 0.0,
) -> PairLoss:
    """IPO (arXiv 2310.12036): `(d - 1 / (2β) - m)²`, d = c / |y+| - r / |y-|: means over tokens, as its authors compute it.

    >>> found = ipo_loss(4.0, 0.0, 2, 4, beta=0.5, label_smoothing=0.0)
    >>> found.loss, found.by_chosen, found.by_rejected
    (1.0, 1.0, -0.5)
    """
    distance = chosen / max(1, num_chosen) - rejected / max(1, num_rejected) - 1 / (2 * beta) - margin
    return PairLoss(distance**2, 2 * distance / max(1, num_chosen), -2 * distance / max(1, num_rejected))


PREFERENCES: Mapping[str, Callable[[float, float, int, int, float, float, float], PairLoss]] = {
    "sigmoid": sigmoid_loss,
    "ipo": ipo_loss,
}


def centred(pair: PairLoss, chosen: float, rejected: float, factor: float) -> PairLoss:
    """The loss plus `factor (c + r)²`, which holds a reward model's scores near 0: differences alone leave their level free.

    >>> centred(PairLoss(0.5, -0.1, 0.1), 1.0, 2.0, factor=0.5)
    PairLoss(loss=5.0, by_chosen=2.9, by_rejected=3.1)
    """
    slope = 2 * factor * (chosen + rejected)
    return PairLoss(pair.loss + factor * (chosen + rejected) ** 2, pair.by_chosen + slope, pair.by_rejected + slope)


def sigmoid(x: float) -> float:
    """
    >>> sigmoid(0.0), sigmoid(-800.0), sigmoid(800.0)
    (0.5, 0.0, 1.0)
    """
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(max(x, -745.2)) / (1 + math.exp(max(x, -745.2)))


def softplus(x: float) -> float:
    """log(1 + e^x), which is -log σ(-x).

    >>> round(softplus(0.0), 6), softplus(800.0)
    (0.693147, 800.0)
    """
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))
