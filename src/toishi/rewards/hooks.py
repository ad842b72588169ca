"""The optional hooks of rewards, called for all rewards of a run. What they are for stands in `toishi.rewards.base`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from toishi.rewards.base import Closes, HasNotes, HasUsage, HoldsWeights, Prepares, Reward
from toishi.types import Prompt

PREPARE_PROMPTS = 8
"""So many prompts are handed to `prepare`."""


def prepare_rewards(rewards: Sequence[Reward], prompts: Sequence[Prompt]) -> list[str]:
    """Lets every reward try itself out on a few real prompts; returns what they have to say before the start.

    Raises what `prepare` raises: ConfigError to refuse the start.
    """
    for reward in rewards:
        if isinstance(reward, Prepares):
            reward.prepare(prompts[:PREPARE_PROMPTS])
    return [f"reward '{reward.name}': {line}" for reward in rewards if isinstance(reward, HasNotes) for line in reward.notes()]


def usage_of(rewards: Sequence[Reward]) -> dict[str, float]:
    """Totals of what the rewards used, as rewards/<name>/<key>."""
    return {
        f"rewards/{reward.name}/{key}": value
        for reward in rewards
        if isinstance(reward, HasUsage)
        for key, value in reward.usage().items()
    }


def weight_bytes_of(rewards: Sequence[Reward]) -> int:
    """Bytes of the models that rewards keep in this process."""
    return sum(reward.weight_bytes() for reward in rewards if isinstance(reward, HoldsWeights))


@contextmanager
def closing(rewards: Sequence[Reward]) -> Iterator[None]:
    """At its end, however it ends, every reward that holds processes or connections lets go of them."""
    try:
        yield
    finally:
        for reward in rewards:
            if isinstance(reward, Closes):
                reward.close()
