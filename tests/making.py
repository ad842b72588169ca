"""Small groups, rollouts and settings for the tests of the stages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tests.tiny import tiny_model
from toishi.algorithms.rows import Algorithm, algorithm
from toishi.config import OptimizerConfig, TrainConfig
from toishi.policy.critic import Critic
from toishi.policy.policy import Policy
from toishi.types import Completion, Group, Prompt, Rollout, RolloutId
from toishi.update import UpdateSettings


def completion(ids: Sequence[int], loss_mask: Sequence[int] | None = None) -> Completion:
    return Completion(
        token_ids=tuple(ids),
        loss_mask=tuple(loss_mask or [1] * len(ids)),
        sampled_logprobs=(-1.0,) * len(ids),
        entropies=(1.0,) * len(ids),
        text="text",
        finish_reason="stop",
    )


def group(
    number: int, prompt_ids: Sequence[int], answers: Sequence[Sequence[int]], rewards: Sequence[float | None], step: int = 1
) -> Group:
    prompt = Prompt(id=f"p{number}", text="?", token_ids=tuple(prompt_ids))
    rollouts = tuple(
        Rollout(id=RolloutId(step, number, member), prompt=prompt, completion=completion(ids), reward=reward)
        for member, (ids, reward) in enumerate(zip(answers, rewards, strict=True))
    )
    return Group(prompt=prompt, rollouts=rollouts)


def two_groups() -> tuple[Group, Group]:
    """Uneven prompts and answers; one answer of a single token."""
    return (
        group(0, [5, 6, 7, 8], [[9, 10, 4], [11, 4], [12], [9, 13, 14, 15, 4]], [1.0, 0.0, 0.5, 0.0]),
        group(1, [20, 21], [[22, 4], [23, 24, 25, 4], [26, 27, 4]], [0.0, 1.0, 0.3]),
    )


def tiny_policy(family: str = "llama", dtype: torch.dtype = torch.float64) -> Policy:
    return Policy(tiny_model(family, dtype=torch.float64 if dtype == torch.float64 else torch.float32), compute_dtype=dtype)


def tiny_critic(policy: Policy, *, separate: bool = False, lr: float = 0.1, seed: int = 5) -> Critic:
    """A critic whose head is not 0: every text has another value. With a trunk of its own, which starts as another model."""
    config = OptimizerConfig(name="sgd", lr=lr, max_grad_norm=None)
    trunk = policy
    if separate:
        kind = policy.module.config.model_type
        trunk = Policy(tiny_model(kind, seed=seed, dtype=policy.compute_dtype), compute_dtype=policy.compute_dtype)
    critic = Critic(trunk, config, owns_trunk=separate)
    with torch.no_grad():
        generator = torch.Generator().manual_seed(seed)
        critic.weight_D.copy_(torch.randn(len(critic.weight_D), generator=generator, dtype=torch.float64) * 0.1)
        critic.bias.fill_(0.2)
    return critic


def settings(row: Algorithm | str = "grpo", *, shared_prompt: bool = True, lr: float = 0.1, **train: Any) -> UpdateSettings:
    return UpdateSettings(
        algorithm=algorithm(row) if isinstance(row, str) else row,
        train=TrainConfig(**train),
        optimizer=OptimizerConfig(name="sgd", lr=lr, max_grad_norm=None),
        temperature=0.7,
        max_new_tokens=8,
        shared_prompt=shared_prompt,
        token_budget=train.get("micro_batch_tokens", 2048),
        seed=0,
    )


def vowels(completions: list[list[dict[str, str]]], **columns: object) -> list[float]:
    """A reward that a random model can raise: the share of characters that are vowels."""
    texts = [completion[0]["content"] for completion in completions]
    return [sum(letter in "aeiou" for letter in text) / max(1, len(text)) for text in texts]
