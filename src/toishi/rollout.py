"""Prompts in, groups of sampled answers out. Rewards, advantages and tensors come later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from toishi.engines.base import Engine, Request, Sampling, TellsFinished
from toishi.errors import EngineError
from toishi.types import Completion, Group, Prompt, Rollout, RolloutId, RolloutStatus

TRAINING_STREAM = 0
EVALUATION_STREAM = 1
COLLECTING_STREAM = 2
MIXING_STREAM = 3


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
    on_group: Callable[[int, Group], None] | None = None,
) -> tuple[Group, ...]:
    """`group_size` answers to each (rendered) prompt.

    An answer's random numbers depend on (seed, stream, step, group, member) only: neither on the other prompts of the step
    nor on how the engine batches them. `first_group` numbers the groups of a refill round onwards.

    on_group  called in this thread with each group (and its place among `prompts`) when its last answer has ended: while
              others are still sampled where the engine tells of it (`TellsFinished`), else at the end, in order
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
    rollouts: dict[int, Rollout] = {}
    groups: dict[int, Group] = {}

    def ended(number: int, completion: Completion) -> None:
        id_, at = ids[number], number // group_size
        rollouts[number] = _rollout(id_, prompts[at], replace(completion, policy_version=step - 1))
        siblings = range(at * group_size, (at + 1) * group_size)
        if all(sibling in rollouts for sibling in siblings):
            groups[at] = Group(prompt=prompts[at], rollouts=tuple(rollouts[sibling] for sibling in siblings))
            if on_group is not None:
                on_group(at, groups[at])

    if isinstance(engine, TellsFinished):
        engine.generate_telling(requests, sampling, ended)
        if len(groups) < len(prompts):
            raise EngineError(
                f"engine '{engine.name}' told of {len(rollouts)} of {len(ids)} answers: expected on_finished once for each"
            )
    else:
        for number, (_, completion) in enumerate(zip(ids, engine.generate(requests, sampling), strict=True)):
            ended(number, completion)
    return tuple(groups[at] for at in range(len(prompts)))


def _rollout(id_: RolloutId, prompt: Prompt, completion: Completion) -> Rollout:
    status: RolloutStatus = "truncated" if completion.is_truncated else "completed"
    return Rollout(id=id_, prompt=prompt, completion=completion, status=status)
