"""From rewards to advantages.

Decisions:
1. Rewards are float64 tables [P, G] with a mask of the members that count. Others are outside every statistic and get 0,
   so groups of different sizes are just rows with members that do not count.
2. A tie is exactly 0. Rewards whose spread is rounding residue (1e-12 of their size) count as tied; otherwise the residue
   divided by its own standard deviation would be an advantage of order 1.
3. Where the divisor is 0 (tied group, group of one, all-zero rewards for `group_mean`) the advantage is 0, whatever the
   baseline: a comparison that cannot be made teaches nothing.
4. Baseline and scale are independent functions found by name in `BASELINES` and `SCALES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

GROUP, BATCH = (1,), (0, 1)
RESIDUE = 1e-12


def tied(rewards_PG: Tensor, valid_PG: Tensor) -> Tensor:
    """Groups whose counting members all have the same reward, or of which fewer than two count, [P].

    >>> tied(torch.tensor([[0.3, 0.1 + 0.2], [1.0, 0.0]]).double(), torch.tensor([[True, True], [True, True]])).tolist()
    [True, False]
    """
    return _tied(rewards_PG, valid_PG, GROUP).squeeze(1)


def no_baseline(rewards_PG: Tensor, valid_PG: Tensor) -> Tensor:
    """The reward itself."""
    return torch.where(valid_PG, rewards_PG, 0.0)


def group_mean(rewards_PG: Tensor, valid_PG: Tensor) -> Tensor:
    """`r_i - mean of the group` (GRPO). Contains r_i: shrinks the expected gradient by (1 - 1/G), changes no direction.

    >>> group_mean(torch.tensor([[0.8, 0.6, 0.3, 0.3]]).double(), torch.ones(1, 4, dtype=torch.bool)).round(decimals=6).tolist()
    [[0.3, 0.1, -0.2, -0.2]]
    """
    return _centred(rewards_PG, valid_PG, valid_PG.to(rewards_PG.dtype), GROUP)


def leave_one_out(rewards_PG: Tensor, valid_PG: Tensor, owner_PG: Tensor | None = None) -> Tensor:
    """`r_i - mean of the siblings` (RLOO, arXiv 2402.14740). Independent of r_i: the expected gradient is exact.

    owner_PG  when a row holds several rewards per answer (rewards of steps): which answer each belongs to; an answer's
              own rewards are all left out. Without siblings the advantage is 0.

    >>> leave_one_out(torch.tensor([[1.0, 0.0, 0.0]]).double(), torch.ones(1, 3, dtype=torch.bool)).tolist()
    [[1.0, -0.5, -0.5]]
    """
    owner_PG = torch.arange(rewards_PG.shape[1], device=rewards_PG.device).expand_as(valid_PG) if owner_PG is None else owner_PG
    sibling_PGG = (owner_PG.unsqueeze(2) != owner_PG.unsqueeze(1)) & valid_PG.unsqueeze(1)
    counts_PG = sibling_PGG.sum(2)
    sums_PG = torch.where(sibling_PGG, rewards_PG.unsqueeze(1), 0.0).sum(2)
    silent_PG = ~valid_PG | (counts_PG == 0) | _tied(rewards_PG, valid_PG, GROUP)
    return torch.where(silent_PG, 0.0, rewards_PG - sums_PG / counts_PG.clamp(min=1))


def batch_mean(rewards_PG: Tensor, valid_PG: Tensor, counts_PG: Tensor | None = None) -> Tensor:
    """`r_i - mean of the whole batch` (REINFORCE++, arXiv 2501.03262).

    counts_PG  how often each reward counts in the mean: its number of tokens for token-weighted statistics; default once

    >>> batch_mean(torch.tensor([[1.0], [0.0]]).double(), torch.ones(2, 1, dtype=torch.bool), torch.tensor([[3], [1]])).tolist()
    [[0.25], [-0.75]]
    """
    return _centred(rewards_PG, valid_PG, _counts(rewards_PG, valid_PG, counts_PG), BATCH)


def no_scale(rewards_PG: Tensor, valid_PG: Tensor) -> Tensor:
    """1 for every group, [P, 1]."""
    return torch.ones_like(rewards_PG[:, :1])


def group_std(rewards_PG: Tensor, valid_PG: Tensor, ddof: int = 1) -> Tensor:
    """Standard deviation inside each group, [P, 1]; exactly 0 for a tied group and for a group of one.

    >>> group_std(torch.tensor([[0.8, 0.6, 0.3, 0.3]]).double(), torch.ones(1, 4, dtype=torch.bool)).round(decimals=6).tolist()
    [[0.244949]]
    """
    return _std(rewards_PG, valid_PG, valid_PG.to(rewards_PG.dtype), GROUP, ddof)


def batch_std(rewards_PG: Tensor, valid_PG: Tensor, ddof: int = 1, counts_PG: Tensor | None = None) -> Tensor:
    """Standard deviation over the whole batch, [1, 1]; `counts_PG` as in `batch_mean`.

    >>> batch_std(torch.tensor([[2.0], [0.0]]).double(), torch.ones(2, 1, dtype=torch.bool), ddof=0).tolist()
    [[1.0]]
    """
    return _std(rewards_PG, valid_PG, _counts(rewards_PG, valid_PG, counts_PG), BATCH, ddof)


def group_mean_scale(rewards_PG: Tensor, valid_PG: Tensor) -> Tensor:
    """The group's mean reward, [P, 1] (MaxRL, arXiv 2602.02710), for rewards >= 0; 0 for an all-zero group.

    >>> group_mean_scale(torch.tensor([[1.0, 0.0, 0.0, 0.0]]).double(), torch.ones(1, 4, dtype=torch.bool)).tolist()
    [[0.25]]
    """
    return _mean(rewards_PG, valid_PG, valid_PG.to(rewards_PG.dtype), GROUP)


Counts = Tensor | None
BASELINES: Mapping[str, Callable[[Tensor, Tensor, Counts, Counts], Tensor]] = {
    "none": lambda rewards, valid, counts, owner: no_baseline(rewards, valid),
    "batch_mean": lambda rewards, valid, counts, owner: batch_mean(rewards, valid, counts),
    "group_mean": lambda rewards, valid, counts, owner: group_mean(rewards, valid),
    "leave_one_out": lambda rewards, valid, counts, owner: leave_one_out(rewards, valid, owner),
}
"""(rewards_PG, valid_PG, counts_PG, owner_PG) -> rewards minus baseline, [P, G]."""

SCALES: Mapping[str, Callable[[Tensor, Tensor, int, Counts], Tensor]] = {
    "none": lambda rewards, valid, ddof, counts: no_scale(rewards, valid),
    "group_std": lambda rewards, valid, ddof, counts: group_std(rewards, valid, ddof),
    "batch_std": lambda rewards, valid, ddof, counts: batch_std(rewards, valid, ddof, counts),
    "group_mean": lambda rewards, valid, ddof, counts: group_mean_scale(rewards, valid),
}
"""(rewards_PG, valid_PG, ddof, counts_PG) -> divisor, [P, 1] or [1, 1], before epsilon."""


def advantages(
    rewards_PG: Tensor,
    valid_PG: Tensor,
    *,
    baseline: str,
    scale: str,
    ddof: int = 1,
    epsilon: float = 1e-4,
    num_tokens_PG: Tensor | None = None,
    owner_PG: Tensor | None = None,
) -> Tensor:
    """`(r - baseline) / (scale + epsilon)` for every member that counts, 0 for the others, [P, G].

    epsilon        added to the divisor; has no part in scale 'none'
    num_tokens_PG  makes batch statistics token-weighted
    owner_PG       see `leave_one_out`
    Raises ValueError for an unknown baseline or scale.

    >>> rewards, valid = torch.tensor([[1.0, 0.0, 0.0, 0.0]]).double(), torch.tensor([[True, True, True, False]])
    >>> advantages(rewards, valid, baseline="group_mean", scale="group_std", epsilon=0.0).round(decimals=4).tolist()
    [[1.1547, -0.5774, -0.5774, 0.0]]
    """
    if baseline not in BASELINES or scale not in SCALES:
        known = f"baselines {', '.join(BASELINES)}; scales {', '.join(SCALES)}"
        raise ValueError(f"unknown baseline '{baseline}' or scale '{scale}'; known: {known}")
    difference_PG = BASELINES[baseline](rewards_PG, valid_PG, num_tokens_PG, owner_PG)
    if scale == "none":
        return difference_PG
    return divided(difference_PG, SCALES[scale](rewards_PG, valid_PG, ddof, num_tokens_PG), epsilon)


def divided(differences: Tensor, divisor: Tensor, epsilon: float) -> Tensor:
    """`differences / (divisor + epsilon)`, and 0 where the divisor is 0.

    >>> divided(torch.tensor([1.0, 1.0]), torch.tensor([0.0, 2.0]), 0.0).tolist()
    [0.0, 0.5]
    """
    known = divisor != 0
    return torch.where(known, differences / torch.where(known, divisor + epsilon, 1.0), 0.0)


def reward_to_go(rewards_T: Tensor, gamma: float = 1.0) -> Tensor:
    """Return of each token: `R_t = r_t + gamma · R_{t+1}`, over the last dimension.

    >>> reward_to_go(torch.tensor([0.0, 1.0, 2.0]), gamma=0.5).tolist()
    [1.0, 2.0, 2.0]
    """
    if gamma == 1.0:
        return rewards_T.flip(-1).cumsum(-1).flip(-1)
    returns, following = [], torch.zeros_like(rewards_T[..., 0])
    for reward in reversed(rewards_T.unbind(-1)):
        following = reward + gamma * following
        returns.append(following)
    return torch.stack(returns[::-1], dim=-1)


def step_advantages(step_advantages_K: Tensor, last_token_K: Tensor, num_tokens: int) -> Tensor:
    """Advantage of each token from the normalised rewards of an answer's steps, [num_tokens].

        A_t = Σ_k advantage_k over the steps k that end at or after token t     (DeepSeekMath, arXiv 2402.03300, 4.1.3)

    last_token_K  index of the last token of each step

    Two steps ending at tokens 1 and 3:

    >>> step_advantages(torch.tensor([1.0, -0.5]), torch.tensor([1, 3]), num_tokens=4).tolist()
    [0.5, 0.5, -0.5, -0.5]
    """
    rewards_T = step_advantages_K.new_zeros(num_tokens).index_add(0, last_token_K, step_advantages_K)
    return reward_to_go(rewards_T)


def _counts(rewards_PG: Tensor, valid_PG: Tensor, counts_PG: Tensor | None) -> Tensor:
    mask_PG = valid_PG.to(rewards_PG.dtype)
    return mask_PG if counts_PG is None else mask_PG * counts_PG


def _tied(rewards_PG: Tensor, valid_PG: Tensor, dims: tuple[int, ...]) -> Tensor:
    highest = rewards_PG.masked_fill(~valid_PG, -torch.inf).amax(dims, keepdim=True)
    lowest = rewards_PG.masked_fill(~valid_PG, torch.inf).amin(dims, keepdim=True)
    size = rewards_PG.masked_fill(~valid_PG, 0.0).abs().amax(dims, keepdim=True)
    return highest - lowest <= RESIDUE * size


def _mean(rewards_PG: Tensor, valid_PG: Tensor, counts_PG: Tensor, dims: tuple[int, ...]) -> Tensor:
    total = counts_PG.sum(dims, keepdim=True)
    return (rewards_PG.masked_fill(~valid_PG, 0.0) * counts_PG).sum(dims, keepdim=True) / total.clamp(min=1)


def _centred(rewards_PG: Tensor, valid_PG: Tensor, counts_PG: Tensor, dims: tuple[int, ...]) -> Tensor:
    silent_PG = ~valid_PG | _tied(rewards_PG, valid_PG, dims)
    return torch.where(silent_PG, 0.0, rewards_PG - _mean(rewards_PG, valid_PG, counts_PG, dims))


def _std(rewards_PG: Tensor, valid_PG: Tensor, counts_PG: Tensor, dims: tuple[int, ...], ddof: int) -> Tensor:
    """With counts as frequencies: Σ c (r - mean)² / (Σ c - ddof)."""
    squares = _centred(rewards_PG, valid_PG, counts_PG, dims).square() * counts_PG
    return (squares.sum(dims, keepdim=True) / (counts_PG.sum(dims, keepdim=True) - ddof).clamp(min=1)).sqrt()
