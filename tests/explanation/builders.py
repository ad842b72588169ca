"""Runs whose every number is worked out here, in plain Python and float64, from the published formulas.

GRPO with two inner epochs and a k3 KL term: in update 0 the ratio is 1; in update 1 it has moved, and one token is clipped.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from tests.record.builders import RUN_FIELDS
from toishi.record import Run, RunWriter
from toishi.types import (
    Completion,
    Group,
    GroupBaseline,
    Prompt,
    Rollout,
    RolloutId,
    Score,
    StepReport,
    TokenStreams,
    Update,
)

KL_COEF = 0.05
CLIP = 0.2
EPSILON = 1e-4
ALGORITHM = {"name": "grpo", "scale": "group_std", "reduction": "sequence_mean_token_mean", "kl": "k3", "kl_coef": KL_COEF}
CONFIG: dict[str, Any] = {
    "algorithm": ALGORITHM,
    "sampling": {"max_new_tokens": 8, "top_p": 1.0, "top_k": 0, "min_p": 0.0},
    "train": {"inner_epochs": 2, "minibatches": 1},
}
TEXTS = ("the sum is 6", "7 ?", "it is [six]", "6, I think, but let me see", "six", "6")
VALUES = ((1.0, 0.0, None, 0.25), (0.5, 0.5))
"""Values of the reward `number` (weight 2) by group; None failed."""


def write_run(folder: Path, steps: int = 2) -> Run:
    writer = RunWriter.create(folder, {**RUN_FIELDS, "config": CONFIG})
    for step in range(1, steps + 1):
        writer.write_step(build(step), lambda ids: [f"t{number} " for number in ids])
        writer.write_evaluation(evaluation(step))
    writer.write_event({"step": 1, "kind": "health", "message": "one reward failed"})
    return Run.open(folder)


def evaluation(step: int) -> dict[str, Any]:
    by_prompt = {"a": 0.25, "b": 0.5 + step / 4}
    mean = sum(by_prompt.values()) / 2
    return {
        "step": step, "mode": "greedy", "num_prompts": 2, "value": mean, "interval": (mean - 0.1, mean + 0.1),
        "readable": 0.75, "mean_tokens": 3.5, "change": None, "change_interval": None, "by_prompt": by_prompt,
    }  # fmt: skip


def build(step: int) -> StepReport:
    groups = tuple(_group(step, number, values) for number, values in enumerate(VALUES))
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    counted = [rollout for rollout in rollouts if rollout.status != "failed"]
    updates = tuple(_update(step, index, counted) for index in range(2))
    return StepReport(step=step, groups=groups, updates=updates, metrics=_metrics(groups, updates), timings_s={"step": 1.5})


def _group(step: int, number: int, values: tuple[float | None, ...]) -> Group:
    prompt = Prompt(id=f"p{number}", text=f"What is {number} + 6?", gold=6, columns={"a": number}, token_ids=(1, 2))
    rewards = [None if value is None else 2 * value + 0.125 for value in values]
    known = [reward for reward in rewards if reward is not None]
    mean = sum(known) / len(known)
    std = math.sqrt(sum((reward - mean) ** 2 for reward in known) / (len(known) - 1))
    rollouts = []
    for member, (value, reward) in enumerate(zip(values, rewards, strict=True)):
        advantage = 0.0 if reward is None or std == 0 else (reward - mean) / (std + EPSILON)
        rollouts.append(_rollout(RolloutId(step=step, group=number, member=member), prompt, value, reward, advantage))
    return Group(prompt=prompt, rollouts=tuple(rollouts), baseline=GroupBaseline(mean=mean, std=std, count=len(known)))


def _rollout(key: RolloutId, prompt: Prompt, value: float | None, reward: float | None, advantage: float) -> Rollout:
    length = 2 + (key.group + key.member) % 3
    sampled = tuple(-0.3 - 0.11 * place - 0.05 * key.member for place in range(length))
    cut = key.member == 1
    failed = value is None
    number = Score(reward="number", value=value, weight=2.0, reason=f"read {value}")
    if failed:
        number = Score(reward="number", value=None, weight=2.0, reason="timed out", status="failed")
    style = Score(reward="style", value=0.25, weight=0.5)
    return Rollout(
        id=key,
        prompt=prompt,
        completion=Completion(
            token_ids=tuple(range(10, 10 + length)),
            loss_mask=(1,) * (length - 1) + (0,) if key.member == 0 else (1,) * length,
            sampled_logprobs=sampled,
            entropies=tuple(0.5 + 0.1 * place for place in range(length)),
            text=TEXTS[(key.group * 4 + key.member) % 6],
            finish_reason="length" if cut else "stop",
        ),
        scores=(number, style, Score(reward="tone", value=None, status="abstained")),
        reward=reward,
        advantage=advantage,
        ref_logprobs=tuple(value - 0.2 for value in sampled),
        status="failed" if failed else "truncated" if cut else "completed",
        failure="reward number: timed out" if failed else "",
    )


def _update(step: int, index: int, counted: list[Rollout]) -> Update:
    streams = tuple(_streams(rollout, index, len(counted)) for rollout in counted)
    tokens = sum(sum(rollout.completion.loss_mask) for rollout in counted)
    loss = sum(_loss(rollout, stream, len(counted)) for rollout, stream in zip(counted, streams, strict=True))
    scalars = {
        "update/loss": loss,
        "update/tokens": float(tokens),
        "update/rollouts": float(len(counted)),
        "update/grad_norm": 1.0,
    }
    return Update(step=step, index=index, scalars=scalars, streams=streams)


def _streams(rollout: Rollout, index: int, num_sequences: int) -> TokenStreams:
    mask, advantage = rollout.completion.loss_mask, rollout.advantage
    assert isinstance(advantage, float)
    old = tuple((value + 0.001) * has_loss for value, has_loss in zip(rollout.completion.sampled_logprobs, mask, strict=True))
    moves = [0.0 if index == 0 else 0.05 * (place + 1) * (1 if advantage < 0 else 2.5) for place in range(len(mask))]
    new = tuple((value + move) * has_loss for value, move, has_loss in zip(old, moves, mask, strict=True))
    ref = tuple(value * has_loss for value, has_loss in zip(rollout.ref_logprobs or (), mask, strict=True))
    per_token = [_token(*numbers, advantage, sum(mask), num_sequences) for numbers in zip(new, old, ref, mask, strict=True)]
    ratio, clip, kl, weight = zip(*per_token, strict=True)
    return TokenStreams(
        rollout=rollout.id, computed=True, advantage=(advantage,) * len(mask), old_logprob=old, logprob=new,
        ref_logprob=rollout.ref_logprobs or (), entropy=rollout.completion.entropies, ratio=ratio, clip=clip,
        kl_policy_ref=kl, token_weight=weight,
    )  # fmt: skip


def _token(
    new: float, old: float, ref: float, has_loss: int, advantage: float, length: int, num_sequences: int
) -> tuple[float, int, float, float]:
    """Ratio, clip code, k3 and d loss / d logprob of one token: -A·rho if free, 0 if clipped, + beta (1 - exp(ref - new))."""
    if not has_loss:
        return 0.0, 0, 0.0, 0.0
    ratio = math.exp(new - old)
    clip = 2 if advantage > 0 and ratio > 1 + CLIP else 1 if advantage < 0 and ratio < 1 - CLIP else 0
    kl = math.exp(ref - new) - 1 - (ref - new)
    pull = (0.0 if clip else -advantage * ratio) + KL_COEF * (1 - math.exp(ref - new))
    return ratio, clip, kl, pull / (num_sequences * length)


def _loss(rollout: Rollout, stream: TokenStreams, num_sequences: int) -> float:
    mask, advantage = rollout.completion.loss_mask, rollout.advantage
    assert isinstance(advantage, float)
    terms = [
        -min(ratio * advantage, min(max(ratio, 1 - CLIP), 1 + CLIP) * advantage) + KL_COEF * kl
        for ratio, kl, has_loss in zip(stream.ratio, stream.kl_policy_ref, mask, strict=True)
        if has_loss
    ]
    return sum(terms) / (num_sequences * sum(mask))


def _metrics(groups: tuple[Group, ...], updates: tuple[Update, ...]) -> dict[str, float | int | None]:
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    rewards = [rollout.reward for rollout in rollouts if rollout.reward is not None]
    entropies = [value for rollout in rollouts for value in rollout.completion.entropies]
    lengths = [rollout.completion.num_tokens for rollout in rollouts]
    return {
        "reward/mean": sum(rewards) / len(rewards),
        "answers/count": 6,
        "answers/unscored": 1,
        "answers/mean_tokens": sum(lengths) / 6,
        "tokens/sampled": sum(lengths),
        "groups/count": 2,
        "groups/dropped": 0,
        "groups/mixed": 1,
        "entropy/mean_nats": sum(entropies) / len(entropies),
        "sampler_gap/mean_abs": 0.001,
        "sampler_gap/max_abs": 0.001,
        "update/loss": sum(update.scalars["update/loss"] for update in updates) / 2,
        "update/grad_norm": 1.0,
        "time/step_s": 1.5,
    }
