"""Before training: how many groups will teach? From a few sampled groups, in words.

Decisions:
1. A group teaches by comparison only if its rewards differ. Where rewards have two values, such as right and wrong, a group of
   G answers to a prompt with success rate p is tied with probability p^G + (1-p)^G.
2. Rates come from few answers, so each prompt's is pulled towards the common rate by one pseudo-answer: a prompt with 0 right
   of 8 is hard, not impossible.
3. The verdict follows the share of mixed groups: half is plenty, below a fifth training hardly moves. It is a forecast from few
   prompts, and says so with an interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from toishi.ops.stats import Interval, wilson
from toishi.types import Group

Verdict = Literal["go", "doubtful", "no-go"]
GO_SHARE = 0.5
NO_GO_SHARE = 0.2
GROUP_SIZES = (4, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What a few groups say about the first steps.

    mixed        share of groups whose rewards differ, with a 95% interval
    rates        success rate of each prompt, where rewards have two values; empty otherwise
    mixed_by_group_size  expected share of mixed groups for other group sizes; empty without rates
    truncated    share of answers that the token limit cut
    """

    num_groups: int
    group_size: int
    mixed: Interval
    reward_mean: float | None
    truncated: float
    unscored: int
    rates: tuple[float, ...]
    mixed_by_group_size: dict[int, float]
    verdict: Verdict
    why: str


def forecast(groups: Sequence[Group], *, group_size: int, compares: bool) -> Forecast:
    """The forecast from scored groups of `group_size` answers; `compares`: whether the algorithm learns by comparing."""
    rewards = [[reward for reward in group.rewards if reward is not None] for group in groups]
    flat = [reward for group in rewards for reward in group]
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    mixed = wilson(sum(not group.is_tied for group in groups), len(groups))
    rates = success_rates(rewards)
    verdict, why = judge(mixed.value, flat, compares=compares)
    return Forecast(
        num_groups=len(groups),
        group_size=group_size,
        mixed=mixed,
        reward_mean=sum(flat) / len(flat) if flat else None,
        truncated=sum(rollout.completion.is_truncated for rollout in rollouts) / len(rollouts),
        unscored=len(rollouts) - len(flat),
        rates=rates,
        mixed_by_group_size={size: mixed_share(rates, size) for size in GROUP_SIZES} if rates else {},
        verdict=verdict,
        why=why,
    )


def success_rates(rewards: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Each prompt's rate of the higher of two reward values, pulled to the common rate by one pseudo-answer.

    Empty where rewards have more than two values, or only one.

    >>> [round(rate, 3) for rate in success_rates([[1, 0, 0, 0], [0, 0, 0, 0]])]
    [0.225, 0.025]
    >>> success_rates([[0.1, 0.2, 0.3]])
    ()
    """
    values = {reward for group in rewards for reward in group}
    if len(values) != 2:
        return ()
    high = max(values)
    counts = [(sum(reward == high for reward in group), len(group)) for group in rewards]
    common = sum(right for right, _ in counts) / sum(total for _, total in counts)
    return tuple((right + common) / (total + 1) for right, total in counts)


def mixed_share(rates: Sequence[float], group_size: int) -> float:
    """Mean over prompts of 1 - p^G - (1-p)^G.

    >>> round(mixed_share([0.1], 8), 3), round(mixed_share([0.1, 0.9], 16), 3), mixed_share([0.5], 1)
    (0.57, 0.815, 0.0)
    """
    return sum(1 - rate**group_size - (1 - rate) ** group_size for rate in rates) / len(rates)


def judge(mixed: float, rewards: Sequence[float], *, compares: bool) -> tuple[Verdict, str]:
    """The verdict and its reason in words.

    >>> judge(0.1, [0.0] * 30 + [1.0], compares=True)[0], judge(0.6, [0.0, 1.0], compares=True)[0]
    ('no-go', 'go')
    """
    if not rewards:
        return "no-go", "no answer could be scored"
    if len(set(rewards)) == 1:
        kind = "right" if rewards[0] > 0 else "wrong"
        return "no-go", f"every answer got the same reward ({rewards[0]:g}), as if all were {kind}: {_remedy(rewards)}"
    if not compares:
        return "go", "rewards differ, and this algorithm does not need differences inside a group"
    if mixed >= GO_SHARE:
        return "go", "enough groups hold both better and worse answers to learn from"
    if mixed >= NO_GO_SHARE:
        return "doubtful", f"fewer than half of the groups would teach: a slow start. If it stays so, {_remedy(rewards)}"
    return "no-go", f"hardly any group teaches: {_remedy(rewards)}"


def _remedy(rewards: Sequence[float]) -> str:
    middle = (min(rewards) + max(rewards)) / 2
    hard = sum(rewards) / len(rewards) <= middle if min(rewards) < max(rewards) else rewards[0] <= 0
    task = "easier prompts, a reward with partial credit" if hard else "harder prompts, a stricter reward"
    return f"use {task}, a larger train.group_size, or train.refill_rounds"
