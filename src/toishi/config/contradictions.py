"""Parts of a configuration that cannot go together: why, and the remedy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def contradictions_of_answers(config: Any) -> Iterator[str]:
    """Between the algorithm and how its answers are sampled, or where they are written."""
    row, sampling, train = config.algorithm, config.sampling, config.train
    truncated_support = sampling.top_p < 1 or sampling.top_k > 0 or sampling.min_p > 0
    if truncated_support and row.off_policy == "none":
        yield (
            "sampling.top_p/top_k/min_p change the distribution that answers come from, so the data would be "
            "off-policy without a word; set them to 1/0/0, or set algorithm.off_policy to a correction"
        )
    if row.needs_group and train.group_size < 2:
        yield (
            f"algorithm '{row.name}' compares answers to the same prompt (baseline {row.baseline}, scale {row.scale}): "
            f"train.group_size must be at least 2, got {train.group_size}"
        )
    if row.soft_penalty_tokens > sampling.max_new_tokens:
        yield (
            f"algorithm.soft_penalty_tokens={row.soft_penalty_tokens} is more than "
            f"sampling.max_new_tokens={sampling.max_new_tokens}: the ramp before the limit would begin before the first "
            "token, so every answer would be punished; make it shorter"
        )
    if row.source != "sampled" and train.refill_rounds:
        yield "train.refill_rounds samples further prompts, and written answers are not sampled; set it to 0"
    given = row.answers_per_prompt
    if given is None:
        return
    if train.group_size != given:
        yield (
            f"algorithm '{row.name}' takes {given} written answer{'s'[: given - 1]} to a prompt (source {row.source}): "
            f"train.group_size must be {given}, got {train.group_size}"
        )
    if sampling.temperature != 1:
        yield f"sampling.temperature={sampling.temperature:g} would divide the logits of written answers too; set it to 1"


def contradictions_of_training(config: Any) -> Iterator[str]:
    """Between the algorithm, its updates and its critic."""
    row, train, critic = config.algorithm, config.train, config.critic
    if row.credit == "preference" and train.num_updates > 1:
        yield (
            f"credit 'preference' takes its advantages at the weights before the update, so a step has one: set "
            f"train.inner_epochs and train.minibatches to 1, got {train.inner_epochs} and {train.minibatches}"
        )
    if train.minibatches > train.prompts_per_step:
        yield (
            f"train.minibatches={train.minibatches} is more than train.prompts_per_step={train.prompts_per_step}: "
            "groups are never split, so there is at least one prompt per minibatch"
        )
    if config.evaluation.samples == 0 and not config.evaluation.greedy and config.evaluation.prompts > 0:
        yield "evaluation.samples is 0 and evaluation.greedy is false: nothing would be measured; set one, or prompts to 0"
    if not row.needs_critic and critic != type(critic)():
        yield f"algorithm '{row.name}' has no critic, so `critic` has no effect; leave it out, or take one with it (ppo, a2c)"
    if row.needs_critic and 0 < train.steps <= critic.warmup_steps:
        yield (
            f"critic.warmup_steps={critic.warmup_steps} of train.steps={train.steps}: the policy would never learn; make it "
            "smaller"
        )
