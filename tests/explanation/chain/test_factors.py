"""Token weights as products of factors against float64 autograd of the library's loss, for every combination of choices."""

from __future__ import annotations

import itertools
import math
import random

import pytest
import torch

from toishi.algorithms.apply import token_objective
from toishi.algorithms.rows import Algorithm, algorithm
from toishi.explanation.chain.factors import Denominators, factors_of
from toishi.types import Completion, Prompt, Rollout, RolloutId, TokenStreams

MASKS = ((1, 1, 1), (1,), (1, 0, 1, 1, 0))
SURROGATES = ("score_function", "clipped", "dual_clip", "stop_gradient")
LEVELS = ("token", "sequence_mean", "sequence_sum")
REDUCTIONS = ("token_mean", "sequence_mean_token_mean", "sequence_sum", "constant_length")
KLS = ("none", "k2", "k3", "ratio_k3")
CHOICES = list(itertools.product(SURROGATES, LEVELS, REDUCTIONS, KLS, ("none", "truncated_importance", "mask")))
MAX_LENGTH = 7
BRANCHES = {"score_function": {0}, "clipped": {0, 1, 2}, "dual_clip": {0, 1, 2, 3}, "stop_gradient": {0, 1, 2}}


def made(seed: int) -> tuple[list[Rollout], list[TokenStreams]]:
    """Answers whose log-probs have moved far enough that every branch is met; advantages differ from token to token."""
    draw = random.Random(seed)
    pairs = [_one(draw, member, mask) for member, mask in enumerate(MASKS)]
    return [rollout for rollout, _ in pairs], [stream for _, stream in pairs]


def _one(draw: random.Random, member: int, mask: tuple[int, ...]) -> tuple[Rollout, TokenStreams]:
    length = len(mask)

    def around(values: tuple[float, ...], low: float, high: float) -> tuple[float, ...]:
        return tuple(value + draw.uniform(low, high) for value in values)

    old = around((0.0,) * length, -3, -0.5)
    key = RolloutId(1, 0, member)
    completion = Completion(
        token_ids=(1,) * length,
        loss_mask=mask,
        sampled_logprobs=around(old, -1, 1),
        entropies=(1.0,) * length,
        text="",
        finish_reason="stop",
    )
    stream = TokenStreams(
        rollout=key,
        computed=True,
        advantage=around((0.0,) * length, -2, 2),
        old_logprob=old,
        logprob=around(old, -0.6, 1.5),
        ref_logprob=around(old, -1, 1),
        clip=(9,) * length,
    )
    return Rollout(id=key, prompt=Prompt(id="p", text="?"), completion=completion, reward=1.0), stream


def by_autograd(row: Algorithm, rollouts: list[Rollout], streams: list[TokenStreams]) -> list[list[float]]:
    def flat(values: list[tuple[float, ...]]) -> torch.Tensor:
        kept = [
            v for numbers, mask in zip(values, MASKS, strict=True) for v, trained in zip(numbers, mask, strict=True) if trained
        ]
        return torch.tensor(kept, dtype=torch.float64)

    lengths = torch.tensor([sum(mask) for mask in MASKS])
    logprobs = flat([s.logprob for s in streams]).requires_grad_()
    loss = token_objective(
        row,
        logprobs_N=logprobs,
        entropy_N=torch.zeros(int(lengths.sum()), dtype=torch.float64),
        old_logprobs_N=flat([s.old_logprob for s in streams]),
        advantages_N=flat([s.advantage for s in streams]),
        sequence_N=torch.repeat_interleave(torch.arange(len(MASKS)), lengths),
        lengths_B=lengths,
        num_tokens=11,
        num_sequences=4,
        max_length=MAX_LENGTH,
        ref_logprobs_N=flat([s.ref_logprob for s in streams]),
        sampled_logprobs_N=flat([r.completion.sampled_logprobs for r in rollouts]),
    ).loss
    (gradient,) = torch.autograd.grad(loss, [logprobs])
    return [part.tolist() for part in torch.split(gradient, lengths.tolist())]


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_the_product_is_the_derivative(surrogate: str) -> None:
    branches = set()
    for seed, (name, level, reduction, kl, off_policy) in enumerate(CHOICES):
        if name != surrogate:
            continue
        changes = {"surrogate": name, "ratio_level": level, "reduction": reduction, "kl": kl, "off_policy": off_policy}
        row = Algorithm.model_validate(
            algorithm("grpo").model_dump() | changes | {"kl_coef": 0.0 if kl == "none" else 0.3, "dual_clip": 2.0}
        )
        rollouts, streams = made(seed)
        counts = Denominators(num_tokens=11, num_sequences=4, max_length=MAX_LENGTH)
        for rollout, stream, expected in zip(rollouts, streams, by_autograd(row, rollouts, streams), strict=True):
            found = factors_of(rollout, stream, stream.advantage, row, counts)
            assert [factors.product for factors in found] == pytest.approx(expected, abs=1e-10)
            branches |= {factors.clip for factors in found}
    assert (
        branches
        == {"score_function": {0}, "clipped": {0, 1, 2}, "dual_clip": {0, 1, 2, 3}, "stop_gradient": {0, 1, 2}}[surrogate]
    )


def test_one_token_by_hand() -> None:
    """A = 1.5, ratio e^.1, two answers, three tokens of this one: weight = -1.5 · 1.10517 / 6 = -0.276293."""
    (rollout, *_), (stream, *_) = made(0)
    moved = TokenStreams(
        rollout=stream.rollout, computed=True, old_logprob=(-1.0,) * 3, logprob=(-0.9, -1.0, -0.7), clip=(0, 0, 2)
    )
    found = factors_of(rollout, moved, (1.5,) * 3, algorithm("grpo"), Denominators(9, 2, 8))
    assert [factors.product for factors in found] == pytest.approx([-1.5 * math.exp(0.1) / 6, -0.25, 0.0])
    assert [factors.clip for factors in found] == [0, 0, 2]
    assert found[0].share == pytest.approx(1 / 6)


def test_on_a_bound_the_recorded_branch_decides() -> None:
    (rollout, *_), (stream, *_) = made(0)
    logprob = tuple(math.log(1.2 + offset) for offset in (1e-7, 1e-7, 1e-3))
    moved = TokenStreams(rollout=stream.rollout, computed=True, old_logprob=(0.0,) * 3, logprob=logprob, clip=(0, 2, 0))
    found = factors_of(rollout, moved, (1.0,) * 3, algorithm("grpo"), Denominators(9, 2, 8))
    assert [factors.clip for factors in found] == [0, 2, 2]
