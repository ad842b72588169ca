"""Passes over a step's answers before its first update: log-probs, values, and what a pass needs to know.

Decision: nothing here has a gradient; the rows are packed as an update packs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch

from toishi.algorithms.rows import Algorithm
from toishi.config import Config, CriticConfig, OptimizerConfig, TrainConfig
from toishi.packing import PackedRow, pack
from toishi.policy.head import Predictions
from toishi.types import Completion, Group, Rollout, RolloutId

if TYPE_CHECKING:
    from toishi.policy.critic import Critic
    from toishi.policy.policy import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateSettings:
    """What an update needs to know besides the groups."""

    algorithm: Algorithm
    train: TrainConfig
    optimizer: OptimizerConfig
    temperature: float
    max_new_tokens: int
    shared_prompt: bool
    token_budget: int
    seed: int
    critic: CriticConfig = field(default_factory=CriticConfig)

    @classmethod
    def of(cls, config: Config, *, shared_prompt: bool, token_budget: int) -> UpdateSettings:
        """Those of a run: what its configuration says, and what was decided for its model and machine."""
        return cls(
            algorithm=config.algorithm,
            train=config.train,
            optimizer=config.optimizer,
            temperature=config.sampling.temperature,
            max_new_tokens=config.sampling.max_new_tokens,
            shared_prompt=shared_prompt,
            token_budget=token_budget,
            seed=config.seed,
            critic=config.critic,
        )

    def at(self, step: int) -> UpdateSettings:
        """Those of one step: while only the critic learns, its loss has nothing that moves the policy."""
        return replace(self, algorithm=self.algorithm.at(step, self.critic.warmup_steps))


def renew_reference(policy: Policy, settings: UpdateSettings, step: int) -> None:
    """Makes the policy its own reference, where that is due before this step: with `reference_every` 2 before 3, 5, 7, ..."""
    row = settings.algorithm
    if row.needs_step_0 and row.reference_every > 0 and step > 1 and (step - 1) % row.reference_every == 0:
        policy.keep_reference()


def with_reference(policy: Policy, groups: Sequence[Group], settings: UpdateSettings) -> tuple[Group, ...]:
    """The groups with log-probs under the reference, where KL or advantages need them, and the policy's, if unknown."""
    row, everyone = settings.algorithm, [rollout for group in groups for rollout in group.rollouts]
    if row.needs_teacher:
        policy.taught().look_at(everyone)
    if not (row.needs_reference or row.needs_policy_before):
        return tuple(groups)
    reference = reference_logprobs(policy, everyone, settings) if row.needs_reference else {}
    unknown = [one for one in everyone if row.needs_policy_before and not one.completion.sampled_logprobs]
    own = policy_logprobs(policy, unknown, settings)
    known = {one.id: replace(one, ref_logprobs=reference.get(one.id), policy_logprobs=own.get(one.id)) for one in everyone}
    return tuple(replace(group, rollouts=tuple(known[one.id] for one in group.rollouts)) for group in groups)


@torch.no_grad()
def reference_logprobs(
    policy: Policy, rollouts: Sequence[Rollout], settings: UpdateSettings
) -> dict[RolloutId, tuple[float, ...]]:
    """Log-prob of every token under the reference: the model of step 0, or the teacher; 0 at positions without loss."""
    if settings.algorithm.reference == "teacher":
        return policy.taught().logprobs(rollouts, lambda asked: policy_logprobs(asked, rollouts, settings))
    with policy.as_reference():
        return policy_logprobs(policy, rollouts, settings)


def predict(policy: Policy, row: PackedRow) -> Predictions:
    """What the policy predicts at the row's positions with loss."""
    return policy.predict(row.input_ids_L, row.position_ids_L, row.keep_N, row.layout)


def with_values(critic: Critic | None, groups: Sequence[Group], settings: UpdateSettings) -> tuple[Group, ...]:
    """The groups with what the critic says of the text before each token, where there is one.

    Where the row takes a cut answer for a time-out, also of the text after its last token.
    """
    if critic is None:
        return tuple(groups)
    found = values_of(critic, [rollout for group in groups for rollout in group.rollouts], settings)
    return tuple(replace(group, rollouts=tuple(found[one.id] for one in group.rollouts)) for group in groups)


@torch.no_grad()
def values_of(critic: Critic, rollouts: Sequence[Rollout], settings: UpdateSettings) -> dict[RolloutId, Rollout]:
    """The rollouts by id, with their values; 0 at positions without loss."""
    cut = {one.id for one in rollouts if one.completion.is_truncated and settings.algorithm.truncation == "bootstrap"}
    given = {one.id: one for one in rollouts}
    found = {}
    for row in packed_rows(critic.trunk, [_one_longer(one) if one.id in cut else one for one in rollouts], settings):
        values_N = critic.values(predict(critic.trunk, row))
        for number, rollout in enumerate(row.rollouts):
            values = list(row.spread(number, values_N))
            after = values.pop() if rollout.id in cut else None
            found[rollout.id] = replace(given[rollout.id], values=tuple(values), value_after=after)
    return found


def _one_longer(rollout: Rollout) -> Rollout:
    """The answer with one token more, which is never fed: what is said before it is said of the whole answer."""
    completion: Completion = rollout.completion
    longer = replace(completion, token_ids=(*completion.token_ids, 0), loss_mask=(*completion.loss_mask, 1))
    return replace(rollout, completion=longer)


def policy_logprobs(
    policy: Policy, rollouts: Sequence[Rollout], settings: UpdateSettings
) -> dict[RolloutId, tuple[float, ...]]:
    """Log-prob of every token under the policy as it is (or the score, on an answer's last token); 0 where there is no loss."""
    found: dict[RolloutId, tuple[float, ...]] = {}
    with torch.no_grad():
        for row in packed_rows(policy, rollouts, settings):
            logprobs_N, _ = predict(policy, row).logprobs_and_entropy(row.targets_N, settings.temperature)
            for number, rollout in enumerate(row.rollouts):
                found[rollout.id] = row.spread(number, logprobs_N)
    return found


def packed_rows(policy: Policy, rollouts: Sequence[Rollout], settings: UpdateSettings) -> list[PackedRow]:
    """The answers in rows, as an update runs them."""
    return pack(
        rollouts,
        shared_prompt=settings.shared_prompt,
        token_budget=settings.token_budget,
        mix_groups=policy.mixes_groups,
        whole=policy.scores_answers,
        device=policy.device,
    )
