"""How near a float64 recomputation can come to advantages that another program computed in float32."""

from __future__ import annotations

from toishi.algorithms.rows import Algorithm
from toishi.explanation.ledger import EXACT_SUMS
from toishi.types import Group

Advantage = float | tuple[float, ...] | None
SINGLE = 2.0**-21
"""Rounding of an advantage that was computed in float32, relative to the numbers that it was the difference of."""


def single_bound(group: Group, row: Algorithm) -> float:
    """The bound for advantages of a group that were computed in float32: rounding of the rewards over what divides them."""
    largest = max((abs(reward) for reward in group.rewards if reward is not None), default=0.0)
    spread = group.baseline.std if group.baseline and group.baseline.std else 0.0
    divisor = 1.0 if row.scale == "none" else spread + row.std_epsilon
    values = [abs(as_number(rollout.advantage)) for rollout in group.rollouts]
    return SINGLE * (largest / max(divisor, row.std_epsilon, 1e-8) + max(values, default=0.0)) + EXACT_SUMS.absolute


def as_number(advantage: Advantage) -> float:
    """An answer's advantage as one number: the mean over its tokens when each has its own."""
    if isinstance(advantage, tuple):
        return sum(advantage) / len(advantage) if advantage else 0.0
    return advantage or 0.0
