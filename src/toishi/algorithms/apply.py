"""A row applied: literals become functions of `toishi.ops`.

Decisions:
1. Advantages are computed once for the whole step, over all its groups, before anything is split or shuffled.
2. Groups may have different sizes; a member outside the effective mask (see `shaping.counts`) gets advantage 0.
3. The stages are shaping (scores -> rewards), credit (rewards -> advantages), filters (which of them teach) and
   objective (advantages -> loss). Each is a table from a literal to a function; nothing branches on a row's name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from toishi.algorithms.composing import noise_note
from toishi.algorithms.credit import CREDITS, table, valid_table
from toishi.algorithms.filters import FILTERS, Advantage
from toishi.algorithms.objective import Objective, token_objective
from toishi.algorithms.preference import pair_members
from toishi.algorithms.rows import Algorithm
from toishi.algorithms.shaping import Shaped, counts, shaped
from toishi.algorithms.temporal import value_targets
from toishi.errors import RewardError
from toishi.ops.advantages import group_mean_scale, group_std
from toishi.types import Group, GroupBaseline, Rollout

__all__ = ["Objective", "assign_advantages", "counted", "token_objective"]


def assign_advantages(groups: Sequence[Group], row: Algorithm, *, max_new_tokens: int) -> tuple[Group, ...]:
    """The groups of a step with advantages and baseline numbers filled in.

    A rollout that could not be scored, failed or is masked gets advantage 0 and is outside every statistic. A group that
    the row's filter drops has `baseline.kept` False, the reason in `baseline.why`, and advantages 0. With a critic every
    rollout that counts has its returns as well.

    max_new_tokens  the token limit, for the soft length penalty
    Raises RewardError when MaxRL meets a negative reward or a score's span lies outside its completion, NumericsError for
    a reward that is not finite, ConfigError for a penalty ramp longer than the limit, ValueError when log-probs of the
    reference or values are needed and missing.

    Rewards 1, 0, 0, 0 under Dr.GRPO (mean .25):

    >>> from toishi.algorithms.rows import algorithm
    >>> from toishi.types import Completion, Prompt, RolloutId
    >>> prompt, answer = Prompt(id="a", text="?"), Completion(token_ids=(1,), loss_mask=(1,), sampled_logprobs=(-1.0,),
    ...     entropies=(1.0,), text="!", finish_reason="stop")
    >>> rollouts = [Rollout(id=RolloutId(0, 0, member), prompt=prompt, completion=answer, reward=reward)
    ...     for member, reward in enumerate([1.0, 0.0, 0.0, 0.0])]
    >>> (group,) = assign_advantages([Group(prompt=prompt, rollouts=tuple(rollouts))], algorithm("dr_grpo"), max_new_tokens=8)
    >>> [rollout.advantage for rollout in group.rollouts], group.baseline.mean, group.baseline.std
    ([0.75, -0.25, -0.25, -0.25], 0.25, 0.5)
    """
    if not groups:
        return ()
    shaped_groups = [[shaped(rollout, row, max_new_tokens) for rollout in group.rollouts] for group in groups]
    if row.scale == "group_mean":
        _refuse_negative(groups, shaped_groups)
    assigned = CREDITS[row.credit](shaped_groups, row)
    targets: list[list[tuple[float, ...] | None]] = [[None] * len(group) for group in shaped_groups]
    if row.needs_critic:
        targets = value_targets(shaped_groups, row)
    baselines = _baselines(shaped_groups, row)
    stages = zip(groups, assigned, targets, baselines, strict=True)
    return tuple(_finished(*stage, row) for stage in stages)


def counted(groups: Sequence[Group], row: Algorithm) -> tuple[Rollout, ...]:
    """The rollouts that the loss averages over: those whose tokens and sequences the denominators count.

    These are the members of kept groups inside the effective mask; with filter 'keep_best' only the kept answers, with
    credit 'preference' the two that are compared.
    A counted rollout may have advantage 0. Call it with the groups that `assign_advantages` returned.
    """
    return tuple(
        rollout
        for group in groups
        if group.baseline is None or group.baseline.kept
        for rollout in group.rollouts
        if counts(rollout, row) and _averaged(rollout, group, row)
    )


def _averaged(rollout: Rollout, group: Group, row: Algorithm) -> bool:
    if row.filter == "keep_best" and rollout.advantage == 0:
        return False
    return row.credit != "preference" or group.rollouts.index(rollout) in pair_members(group, row)


def _baselines(shaped_groups: Sequence[Sequence[Shaped]], row: Algorithm) -> list[GroupBaseline]:
    """Mean and spread of what the counting members of each group earned."""
    totals_PG = table([[answer.total for answer in group] for group in shaped_groups])
    valid_PG = valid_table(shaped_groups)
    means, stds = group_mean_scale(totals_PG, valid_PG), group_std(totals_PG, valid_PG, row.std_ddof)
    return [
        GroupBaseline(mean=mean if count else None, std=std if count else None, count=count)
        for mean, std, count in zip(means[:, 0].tolist(), stds[:, 0].tolist(), valid_PG.sum(1).tolist(), strict=True)
    ]


def _finished(
    group: Group,
    advantages: Sequence[Advantage],
    returns: Sequence[tuple[float, ...] | None],
    baseline: GroupBaseline,
    row: Algorithm,
) -> Group:
    judged = [rollout.reward if counts(rollout, row) else None for rollout in group.rollouts]
    verdict = FILTERS[row.filter](advantages, judged)
    why = "; ".join(filter(None, (verdict.why, noise_note(group.rollouts))))
    rollouts = tuple(
        replace(rollout, advantage=advantage, returns=targets)
        for rollout, advantage, targets in zip(group.rollouts, verdict.advantages, returns, strict=True)
    )
    return replace(group, rollouts=rollouts, baseline=replace(baseline, kept=verdict.kept, why=why))


def _refuse_negative(groups: Sequence[Group], shaped_groups: Sequence[Sequence[Shaped]]) -> None:
    for group, shapes in zip(groups, shaped_groups, strict=True):
        for rollout, answer in zip(group.rollouts, shapes, strict=True):
            lowest = min([answer.outcome, *(reward for reward, _ in answer.steps)])
            if lowest < 0:
                raise RewardError(
                    f"rollout {rollout.id}: reward {lowest:g} is negative, but scale 'group_mean' (MaxRL) divides by the "
                    "group's mean reward and needs rewards >= 0; use a reward that starts at 0, or another scale"
                )
