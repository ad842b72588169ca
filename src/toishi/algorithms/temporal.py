"""Advantages of tokens from a critic's values: what came differently than it expected.

Decisions:
1. A token's reward is what was earned at it: the outcome at the last token, a step's reward at the step's last one, minus the
   KL penalty of the token. What falls on a token without loss (a tool's) belongs to the last token with loss before it, which
   brought it about.
2. Only tokens with loss are in the recursion, so others neither discount nor lengthen it.
3. Answers stand in one table flush right: what fills it up on the left comes after them in the recursion and cannot reach them.
4. Returns, which the critic is taught, are formed before advantages are whitened.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from toishi.algorithms.filters import Advantage
from toishi.algorithms.rows import Algorithm
from toishi.algorithms.shaping import Shaped, token_rewards
from toishi.ops.advantages import batch_mean, batch_std, divided
from toishi.ops.gae import Gae, gae

ShapedGroups = Sequence[Sequence[Shaped]]


def surprises(groups: ShapedGroups, row: Algorithm) -> list[list[Advantage]]:
    """One number per token with loss, by generalised advantage estimation; whitened over the step where the row says so."""
    answers = [answer for group in groups for answer in group]
    advantages_BT = _estimated(answers, row).advantages_T
    if row.whiten:
        mask_BT = _flush_right([[1.0] * answer.num_tokens if answer.counts else [] for answer in answers]).bool()
        centred_BT = batch_mean(advantages_BT, mask_BT)
        advantages_BT = divided(centred_BT, batch_std(advantages_BT, mask_BT, row.std_ddof), row.std_epsilon)
    found = iter(_back(advantages_BT, answers))
    return [[next(found) for _ in group] for group in groups]


def value_targets(groups: ShapedGroups, row: Algorithm) -> list[list[tuple[float, ...] | None]]:
    """What each value is to become, in the same places as `surprises`; None for an answer that does not count."""
    answers = [answer for group in groups for answer in group]
    found = iter(_back(_estimated(answers, row).returns_T, answers))
    return [
        [numbers if answer.counts else None for answer, numbers in ((one, next(found)) for one in group)] for group in groups
    ]


def _estimated(answers: Sequence[Shaped], row: Algorithm) -> Gae:
    counting = [answer if answer.counts else None for answer in answers]
    return gae(
        _flush_right([token_rewards(answer) if answer else [] for answer in counting]),
        _flush_right([_with_loss(answer.values_T, answer) if answer else [] for answer in counting]),
        gamma=row.gamma,
        lam=row.gae_lambda,
        after=torch.tensor([answer.value_after if answer else 0.0 for answer in counting], dtype=torch.float64),
    )


def _with_loss(numbers_T: Sequence[float], answer: Shaped) -> list[float]:
    return [number for number, trained in zip(numbers_T, answer.loss_mask_T, strict=True) if trained]


def _flush_right(rows: Sequence[Sequence[float]]) -> Tensor:
    """
    >>> _flush_right([[1.0], [2.0, 3.0]]).tolist()
    [[0.0, 1.0], [2.0, 3.0]]
    """
    width = max([1, *map(len, rows)])
    return torch.tensor([[0.0] * (width - len(row)) + list(row) for row in rows], dtype=torch.float64).reshape(-1, width)


def _back(table_BT: Tensor, answers: Sequence[Shaped]) -> list[tuple[float, ...]]:
    """Each answer's numbers at its tokens with loss, 0 at the others and for one that does not count."""
    found = []
    for numbers, answer in zip(table_BT.tolist(), answers, strict=True):
        mine = iter(numbers[len(numbers) - answer.num_tokens :] if answer.counts else [0.0] * answer.num_tokens)
        found.append(tuple(next(mine) if trained else 0.0 for trained in answer.loss_mask_T))
    return found
