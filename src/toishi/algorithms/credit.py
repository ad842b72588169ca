"""Who gets the credit: advantages of answers, or of tokens.

Decisions:
1. `whole_answer`: one number for each answer. Rewards of steps are normalised among all step rewards of their group, and
   a token adds those of the steps that end at or after it (DeepSeekMath, arXiv 2402.03300, 4.1.3).
2. `to_go`: a token's return is what its answer earns at and after it; KL in the reward is paid token by token. What is
   subtracted and divided by comes from whole-answer returns, so it is one number for an answer; only token statistics of
   the batch (REINFORCE++) look at the returns of tokens.
3. All tables of a step are built at once: [P, G] for answers, [P, M] for steps, [P, G, T] for tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from toishi.algorithms.filters import Advantage
from toishi.algorithms.preference import pair_advantages
from toishi.algorithms.rows import Algorithm
from toishi.algorithms.shaping import Shaped
from toishi.errors import RewardError
from toishi.ops.advantages import (
    BASELINES,
    SCALES,
    advantages,
    batch_mean,
    batch_std,
    divided,
    reward_to_go,
    step_advantages,
)

ShapedGroups = Sequence[Sequence[Shaped]]


def whole_answer(groups: ShapedGroups, row: Algorithm) -> list[list[Advantage]]:
    """An advantage for each answer of each group; a tuple with one number per token where steps were scored."""
    outcome_PG = COMBINES[row.combine](groups, row)
    steps = _steps(groups, row)
    return [
        [_with_steps(outcome_PG[p, g].item(), steps.get((p, g)), answer) for g, answer in enumerate(group)]
        for p, group in enumerate(groups)
    ]


def to_go(groups: ShapedGroups, row: Algorithm) -> list[list[Advantage]]:
    """One number per token: the token's return minus its answer's baseline, divided by the scale."""
    returns_PGT, mask_PGT = _returns(groups)
    difference_PGT = _centred_returns(returns_PGT, mask_PGT, valid_table(groups), _num_tokens(groups), row)
    return [
        [tuple(difference_PGT[p, g, : len(answer.loss_mask_T)].tolist()) for g, answer in enumerate(group)]
        for p, group in enumerate(groups)
    ]


def of_pairs(groups: ShapedGroups, row: Algorithm) -> list[list[Advantage]]:
    """The best and the worst answer of each group, as a preference loss compares them."""
    return [list(pair_advantages(group, row)) for group in groups]


def of_the_teacher(groups: ShapedGroups, row: Algorithm) -> list[list[Advantage]]:
    """log p_teacher - log p of each token: minus its sampled estimate of KL(policy ‖ teacher) (MiniLLM, arXiv 2306.08543)."""
    return [[tuple(-apart for apart in answer.log_ratio_T) if answer.counts else 0.0 for answer in group] for group in groups]


def of_the_sum(groups: ShapedGroups, row: Algorithm) -> Tensor:
    """Rewards are added first, and the sums compared, [P, G]."""
    return advantages(
        table([[answer.outcome_with_kl for answer in group] for group in groups]),
        valid_table(groups),
        baseline=row.baseline,
        scale=row.scale,
        ddof=row.std_ddof,
        epsilon=row.std_epsilon,
        num_tokens_PG=_num_tokens(groups) if row.statistics_over == "tokens" else None,
    )


def of_each_reward(groups: ShapedGroups, row: Algorithm) -> Tensor:
    """GDPO (arXiv 2601.05242): each reward compared by itself, added by weight, divided by the step's spread, [P, G].

        Aᵢ = Sᵢ / (std of S over the step + ε)        Sᵢ = Σ_k weight_k · (v_ik - baseline_k) / (scale_k + ε)

    The mean of S over the step, which the paper subtracts, is 0: every reward is centred in its group.
    Raises RewardError for rewards of intermediate steps, which this is not defined for.
    """
    sums_PG = sums_of_rewards(groups, row)
    return divided(sums_PG, batch_std(sums_PG, valid_table(groups), row.std_ddof), row.std_epsilon)


def sums_of_rewards(groups: ShapedGroups, row: Algorithm) -> Tensor:
    """S of `of_each_reward`: the weighted sum of the rewards' own advantages, [P, G]."""
    if any(answer.steps for group in groups for answer in group):
        raise RewardError(
            "a reward scores intermediate steps (token spans), and combine 'normalise_each' (GDPO) is about whole answers; "
            "set algorithm.combine to 'sum'"
        )
    names = dict.fromkeys(name for group in groups for answer in group for name in answer.parts)
    return torch.stack([valid_table(groups) * 0.0, *(reward_advantages(groups, row, name) for name in names)]).sum(0)


def reward_advantages(groups: ShapedGroups, row: Algorithm, name: str) -> Tensor:
    """One reward through the row's baseline and scale, among the answers it says something of, times its weight, [P, G]."""
    silent = (0.0, 0.0)
    weights_PG = table([[answer.parts.get(name, silent)[0] for answer in group] for group in groups])
    values_PG = table([[answer.parts.get(name, silent)[1] for answer in group] for group in groups])
    own_PG = advantages(
        values_PG, weights_PG != 0, baseline=row.baseline, scale=row.scale, ddof=row.std_ddof, epsilon=row.std_epsilon
    )
    return weights_PG * own_PG


COMBINES: Mapping[str, Callable[[ShapedGroups, Algorithm], Tensor]] = {
    "sum": of_the_sum,
    "normalise_each": of_each_reward,
}

CREDITS: Mapping[str, Callable[[ShapedGroups, Algorithm], list[list[Advantage]]]] = {
    "sequence": whole_answer,
    "reward_to_go": to_go,
    "preference": of_pairs,
    "teacher": of_the_teacher,
}


def table(rows: Sequence[Sequence[float]]) -> Tensor:
    """Rows of unequal length as one float64 table, filled with 0.

    >>> table([[1.0], [2.0, 3.0]]).tolist()
    [[1.0, 0.0], [2.0, 3.0]]
    """
    width = max([1, *(len(row) for row in rows)])
    return torch.tensor([[*row, *[0.0] * (width - len(row))] for row in rows], dtype=torch.float64).reshape(-1, width)


def valid_table(groups: ShapedGroups) -> Tensor:
    """Which entries of `table` hold an answer that counts."""
    return table([[float(answer.counts) for answer in group] for group in groups]).bool()


def _num_tokens(groups: ShapedGroups) -> Tensor:
    return table([[float(answer.num_tokens) for answer in group] for group in groups])


def _steps(groups: ShapedGroups, row: Algorithm) -> dict[tuple[int, int], list[tuple[float, int]]]:
    """(group, member) -> (normalised reward, last token) of each of the answer's steps."""
    flat = [
        [(member, reward, last) for member, answer in enumerate(group) for reward, last in answer.steps] for group in groups
    ]
    if not any(flat):
        return {}
    values_PM = advantages(
        table([[reward for _, reward, _ in steps] for steps in flat]),
        table([[1.0] * len(steps) for steps in flat]).bool(),
        baseline=row.baseline,
        scale=row.scale,
        ddof=row.std_ddof,
        epsilon=row.std_epsilon,
        owner_PG=table([[float(member) for member, _, _ in steps] for steps in flat]),
    )
    found: dict[tuple[int, int], list[tuple[float, int]]] = {}
    for p, steps in enumerate(flat):
        for m, (member, _, last) in enumerate(steps):
            found.setdefault((p, member), []).append((values_PM[p, m].item(), last))
    return found


def _with_steps(outcome: float, steps: list[tuple[float, int]] | None, answer: Shaped) -> Advantage:
    if steps is None:
        return outcome
    values_K = torch.tensor([value for value, _ in steps], dtype=torch.float64)
    last_token_K = torch.tensor([last for _, last in steps])
    return tuple((outcome + step_advantages(values_K, last_token_K, len(answer.loss_mask_T))).tolist())


def _returns(groups: ShapedGroups) -> tuple[Tensor, Tensor]:
    """What each token's answer earns at and after it, and which tokens have loss and count, [P, G, T].

    The outcome sits on the last token; that of an answer without tokens on position 0, so that its total is found there too.
    """
    shape = valid_table(groups).shape
    longest = max([1, *(len(answer.loss_mask_T) for group in groups for answer in group)])
    rewards_PGT = torch.zeros(*shape, longest, dtype=torch.float64)
    mask_PGT = torch.zeros(*shape, longest, dtype=torch.bool)
    for p, group in enumerate(groups):
        for g, answer in enumerate(group):
            length = len(answer.loss_mask_T)
            rewards_PGT[p, g, max(length - 1, 0)] = answer.outcome
            for reward, last in answer.steps:
                rewards_PGT[p, g, last] += reward
            if answer.kl_penalty_T:
                rewards_PGT[p, g, :length] -= torch.tensor(answer.kl_penalty_T, dtype=torch.float64)
            if answer.counts:
                mask_PGT[p, g, :length] = torch.tensor(answer.loss_mask_T, dtype=torch.bool)
    return reward_to_go(rewards_PGT), mask_PGT


def _centred_returns(returns_PGT: Tensor, mask_PGT: Tensor, valid_PG: Tensor, num_tokens_PG: Tensor, row: Algorithm) -> Tensor:
    totals_PG = returns_PGT[:, :, 0]
    by_token = row.statistics_over == "tokens"
    tokens, mask = returns_PGT.flatten(1), mask_PGT.flatten(1)
    counts_PG = num_tokens_PG if by_token else None
    if by_token and row.baseline == "batch_mean":
        difference_PGT = batch_mean(tokens, mask).view_as(returns_PGT)
    else:
        baseline_PG = totals_PG - BASELINES[row.baseline](totals_PG, valid_PG, counts_PG, None)
        difference_PGT = torch.where(valid_PG.unsqueeze(2), returns_PGT - baseline_PG.unsqueeze(2), 0.0)
    if row.scale == "none":
        return difference_PGT
    if by_token and row.scale == "batch_std":
        divisor = batch_std(tokens, mask, row.std_ddof)
    else:
        divisor = SCALES[row.scale](totals_PG, valid_PG, row.std_ddof, counts_PG)
    return divided(difference_PGT, divisor.unsqueeze(2), row.std_epsilon)
