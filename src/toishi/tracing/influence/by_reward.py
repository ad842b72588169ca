"""An answer's advantage and share, by reward."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from toishi.ops.influence_bounds import advantage_parts
from toishi.record.influence import RewardShare
from toishi.tracing.influence.rows import Source
from toishi.types import Group, Rollout, RolloutId

REST = "rest"


def reward_parts(group: Group, sources: Mapping[RolloutId, Source]) -> dict[RolloutId, dict[str, float]]:
    """Each answer's advantage by reward (see `ops.influence_bounds.advantage_parts`); `rest` is what the rule leaves over."""
    members = [rollout for rollout in group.rollouts if rollout.id in sources and rollout.reward is not None]
    names = list(dict.fromkeys(score.reward for rollout in members for score in rollout.scores))
    if not names or any(isinstance(rollout.advantage, tuple) for rollout in members):
        return {}
    parts_GK = torch.tensor([[_earned(rollout, name) for name in names] for rollout in members], dtype=torch.float64)
    advantages_G = torch.tensor([sources[rollout.id].advantage for rollout in members], dtype=torch.float64)
    split_GK, left_G = advantage_parts(parts_GK, advantages_G)
    return {
        rollout.id: dict(zip([*names, REST], [*split, left], strict=True))
        for rollout, split, left in zip(members, split_GK.tolist(), left_G.tolist(), strict=True)
    }


def _earned(rollout: Rollout, name: str) -> float:
    return math.fsum(score.contribution or 0.0 for score in rollout.scores if score.reward == name)


def shares_by_reward(parts: Mapping[str, float], source: Source | None, lift: float) -> tuple[RewardShare, ...]:
    """The share by reward; `lift` is what a unit of advantage is worth in shares."""
    if source is None:
        return ()
    least = 1e-9 * max(1.0, abs(source.advantage))
    return tuple(
        RewardShare(reward=name, advantage=part, share=part * lift)
        for name, part in parts.items()
        if name != REST or abs(part) > least
    )
