"""Prompts in, groups of sampled answers out. Rewards, advantages and tensors come later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from toishi.engines.base import Engine, Request, Sampling
from toishi.types import Completion, Group, Prompt, Rollout, RolloutId, RolloutStatus

TRAINING_STREAM = 0
EVALUATION_STREAM = 1


def sample_groups(
    prompts: Sequence[Prompt],
    engine: Engine,
    sampling: Sampling,
    *,
    seed: int,
    step: int,
    group_size: int,
    first_group: int = 0,
    stream: int = TRAINING_STREAM,
) -> tuple[Group, ...]:
    """`group_size` answers to each (rendered) prompt.

    An answer's random numbers depend on (seed, stream, step, group, member) only: neither on the other prompts of the step
    nor on how the engine batches them. `first_group` numbers the groups of a refill round onwards.
    """
    ids = [
        RolloutId(step=step, group=first_group + position, member=member)
        for position in range(len(prompts))
        for member in range(group_size)
    ]
    requests = [
        Request(prompt_ids=prompts[id_.group - first_group].token_ids, key=(seed, stream, id_.step, id_.group, id_.member))
        for id_ in ids
    ]
    completions = [replace(completion, policy_version=step - 1) for completion in engine.generate(requests, sampling)]
    rollouts = [
        _rollout(id_, prompts[id_.group - first_group], completion) for id_, completion in zip(ids, completions, strict=True)
    ]
    return tuple(
        Group(prompt=prompt, rollouts=tuple(rollouts[at * group_size : (at + 1) * group_size]))
        for at, prompt in enumerate(prompts)
    )


def _rollout(id_: RolloutId, prompt: Prompt, completion: Completion) -> Rollout:
    status: RolloutStatus = "truncated" if completion.is_truncated else "completed"
    return Rollout(id=id_, prompt=prompt, completion=completion, status=status)
