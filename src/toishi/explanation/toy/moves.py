"""Why a word's probability moved: its own growth against that of all words together.

Decision: the first step of SGD and of Adam is proportional to the learning rate, so a word's log-probability changes by
rate · c - log Σ_v p_v e^(rate · c_v) for fixed c. That is 0 at rate 0 and bends down: a word that gains at first loses from one
rate on, unless no other word's logit rises more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from toishi.explanation.toy.model import World, initial_logits
from toishi.explanation.toy.walk import Update, WordMove
from toishi.types import Group

NOTHING = 1e-9
EQUAL = 1e-6
"""Relative: steps of logits that differ by less are one step."""
HALVINGS = 200


def word_moves(world: World, group: Group, update: Update) -> tuple[WordMove, ...]:
    """One entry for each first word: p_after / p_before = e^(change of its logit) / Σ_v p_v e^(change of v's logit)."""
    changes_V = torch.tensor(update.step.change.first, dtype=torch.float64)
    start_V = initial_logits(world).softmax(-1)[0]
    total = (start_V * changes_V.exp()).sum().item()
    return tuple(_move(world, group, update, index, total) for index in range(len(world.words)))


def _move(world: World, group: Group, update: Update, index: int, total: float) -> WordMove:
    change = update.step.change.first[index]
    growth = torch.tensor(change, dtype=torch.float64).exp().item()
    own = [rollout.advantage_per_token[0] for rollout in group.rollouts if rollout.completion.token_ids[0] == index]
    advantage = sum(own) / len(own) if own else None
    return WordMove(
        word=world.words[index],
        advantage=advantage,
        change=change,
        growth=growth,
        total=total,
        factor=growth / total,
        before=world.first[index],
        after=update.step.after.probabilities.first[index],
        surprising=advantage is not None and advantage * (growth / total - 1) < -NOTHING,
        turns_at=turning_rate(world.first, [other / update.step.lr for other in update.step.change.first], index),
    )


def turning_rate(probabilities: Sequence[float], directions: Sequence[float], index: int) -> float | None:
    """The learning rate at which the step rate · directions leaves a word's probability as it was; None when none does.

    >>> turning_rate((0.5, 0.5), (1.0, 0.0), 0) is None  # nothing rises more: gains at every rate
    True
    >>> turning_rate((0.5, 0.5), (0.0, 1.0), 0) is None  # loses at every rate
    True
    >>> round(turning_rate((0.25, 0.5, 0.25), (2.0, 1.0, -2.0), 1), 6)  # (e^2r + e^-2r) / 4 + e^r / 2 = e^r
    0.609378
    """
    own = directions[index]
    mean = math.fsum(p * c for p, c in zip(probabilities, directions, strict=True))
    least = EQUAL * max(map(abs, directions))
    if own - mean <= least or max(directions) - own <= least:
        return None

    def gained(rate: float) -> float:
        """Change of the log-probability."""
        return -math.log(math.fsum(p * math.exp(rate * (c - own)) for p, c in zip(probabilities, directions, strict=True)))

    low, high = 0.0, 1.0
    while gained(high) > 0:
        low, high = high, 2 * high
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if gained(middle) > 0 else (low, middle)
    return (low + high) / 2
