"""SFT beside GRPO on one prompt: two gradients from the same weights, and what a step of equal length along each does.

Decisions:
1. SFT's loss is the mean over the target's tokens of -log p at temperature 1, as SFT trains. GRPO's gradient is the recorded
   token weights times the gradients of the log-probs (an entropy term is not in it). Its negative part is that of the answers
   with advantage < 0 alone: what SFT, which has no place for "this one is bad", cannot use.
2. Effects are measured, not predicted: a copy of the weights is moved and log-probs are computed again. The policy's own
   weights are swapped by pointer and come back bit for bit.
3. All of it in the masters' precision: in bfloat16 a step of this length would be lost in rounding.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from toishi.ops.norms import cosine, dot, norm
from toishi.passes import packed_rows, predict
from toishi.policy.policy import Policy
from toishi.record.trace import Contrast, Direction, DirectionName, LayerCosine
from toishi.session import Learner
from toishi.tracing.probing import probe
from toishi.types import Group, Rollout, RolloutId, Update

TARGET_NATS = 0.5
_LAYER = re.compile(r"(?:^|\.)(?:layers|layer|h|blocks)\.(\d+)\.")

Gradient = Mapping[str, Tensor]
TokenWeights = Mapping[RolloutId, Sequence[float]]


@dataclass(frozen=True, slots=True)
class _Parts:
    """Of each weight: squared norm of a gradient, and its product with the SFT gradient."""

    squared: dict[str, float]
    with_sft: dict[str, float]

    def norm(self, names: Sequence[str]) -> float:
        return math.sqrt(math.fsum(self.squared[name] for name in names))

    def product(self, names: Sequence[str]) -> float:
        return math.fsum(self.with_sft[name] for name in names)


def contrast(
    learner: Learner, group: Group, update: Update, weights: Mapping[str, Tensor], reference: Rollout | None
) -> Contrast:
    """Both gradients at `weights` (the masters before the step), cosines, and the measured effect of equal steps.

    update     whose recorded token weights make the GRPO gradient: the step's first
    reference  the right answer; without one, SFT is shown the best-rewarded answer
    """
    policy, target = learner.policy, reference or best_rewarded(group)
    answers = {f"member {rollout.id.member}": rollout for rollout in group.rollouts}
    answers |= {} if reference is None else {"reference": reference}
    with in_master_precision(policy), policy.with_weights(weights):
        sft = _sft_gradient(learner, target)
        sft_parts = _parts(sft, sft)
        names = list(sft)
        sft_norm = sft_parts.norm(names)
        length = TARGET_NATS / (sum(target.completion.loss_mask) * sft_norm) if sft_norm > 0 else 0.0
        before = _totals(learner, answers)
        directions = [_direction(learner, "sft", sft, sft_parts, sft_norm, length, weights, answers, before)]
        parts: dict[str, _Parts] = {}
        for name, gradient in _grpo_gradients(learner, group, update):
            parts[name] = _parts(gradient, sft)
            directions.append(_direction(learner, name, gradient, parts[name], sft_norm, length, weights, answers, before))
        policy.zero_grad()
    return Contrast(
        group=group.rollouts[0].id.group,
        target="reference" if reference is not None else f"member {target.id.member}",
        target_text=target.completion.text,
        step_norm=length,
        precision=str(next(iter(weights.values())).dtype).removeprefix("torch."),
        answers=tuple(answers),
        directions=(directions[0], directions[2], directions[1]),
        layers=tuple(_layers(names, sft_parts, parts["grpo"], parts["grpo_negative"])),
    )


def best_rewarded(group: Group) -> Rollout:
    """The first answer with the highest reward."""
    return max(group.rollouts, key=lambda rollout: (rollout.reward is not None, rollout.reward or 0.0, -rollout.id.member))


@contextmanager
def in_master_precision(policy: Policy) -> Iterator[None]:
    """Inside, the module computes in the masters' precision. Widening and narrowing again gives back the same bits."""
    if not policy.has_separate_masters:
        yield
        return
    policy.module.to(next(iter(policy.masters.values())).dtype)
    try:
        yield
    finally:
        policy.module.to(policy.compute_dtype)


def _sft_gradient(learner: Learner, target: Rollout) -> dict[str, Tensor]:
    weight = -1.0 / sum(target.completion.loss_mask)
    learner.policy.zero_grad()
    _backward(learner, {target.id: [weight] * target.completion.num_tokens}, [target], temperature=1.0)
    taken = {name: _gradient(master) for name, master in learner.policy.masters.items()}
    learner.policy.zero_grad()
    return taken


def _grpo_gradients(learner: Learner, group: Group, update: Update) -> Iterator[tuple[DirectionName, dict[str, Tensor]]]:
    """The negative part, then the whole: the rest is added onto the first, so only one of them is ever in memory."""
    weights = {stream.rollout: stream.token_weight for stream in update.streams if stream.computed}
    computed = [rollout for rollout in group.rollouts if rollout.id in weights]
    negative = [rollout for rollout in computed if sum(rollout.advantage_per_token) < 0]
    rest = [rollout for rollout in computed if rollout not in negative]
    parts: tuple[tuple[DirectionName, list[Rollout]], ...] = (("grpo_negative", negative), ("grpo", rest))
    for name, rollouts in parts:
        _backward(learner, weights, rollouts, temperature=learner.settings.temperature)
        yield name, {key: _gradient(master) for key, master in learner.policy.masters.items()}


@torch.enable_grad()
def _backward(learner: Learner, weights: TokenWeights, rollouts: Sequence[Rollout], *, temperature: float) -> None:
    """Adds the gradient of Σ weight · log-prob to the masters'."""
    for row in packed_rows(learner.policy, rollouts, learner.settings):
        logprobs_N, _ = predict(learner.policy, row).logprobs_and_entropy(row.targets_N, temperature)
        logprobs_N.backward(row.stream((weights[rollout.id] for rollout in row.rollouts), logprobs_N.dtype))  # type: ignore[no-untyped-call]


def _gradient(master: Tensor) -> Tensor:
    return torch.zeros_like(master, requires_grad=False) if master.grad is None else master.grad


def _parts(gradient: Gradient, sft: Gradient) -> _Parts:
    return _Parts(
        squared={name: norm(value) ** 2 for name, value in gradient.items()},
        with_sft={name: dot(value, sft[name]) for name, value in gradient.items()},
    )


def _direction(
    learner: Learner,
    name: DirectionName,
    gradient: Gradient,
    parts: _Parts,
    sft_norm: float,
    length: float,
    weights: Mapping[str, Tensor],
    answers: Mapping[str, Rollout],
    before: Sequence[float],
) -> Direction:
    """Norm and cosine of a gradient, and what a step of `length` against it does to each answer."""
    names = list(gradient)
    size = parts.norm(names)
    changes = [0.0] * len(before)
    if size > 0:
        with torch.no_grad():
            moved = {key: weights[key].detach() - gradient[key] * (length / size) for key in names}
        with learner.policy.with_weights(moved):
            changes = [after - start for after, start in zip(_totals(learner, answers), before, strict=True)]
    return Direction(
        name=name, gradient_norm=size, cosine_with_sft=cosine(parts.product(names), size, sft_norm), changes=tuple(changes)
    )


def _totals(learner: Learner, answers: Mapping[str, Rollout]) -> list[float]:
    """Log-prob of each whole answer."""
    logprobs = probe(learner.policy, list(answers.values()), learner.settings).logprobs
    return [sum(logprobs[rollout.id]) for rollout in answers.values()]


def _layers(names: Sequence[str], sft: _Parts, grpo: _Parts, negative: _Parts) -> Iterator[LayerCosine]:
    by_layer: dict[str, list[str]] = {}
    for name in names:
        by_layer.setdefault(layer_of(name), []).append(name)
    for layer, members in by_layer.items():
        norms = [part.norm(members) for part in (sft, grpo, negative)]
        yield LayerCosine(
            layer=layer,
            sft_norm=norms[0],
            grpo_norm=norms[1],
            negative_norm=norms[2],
            grpo_with_sft=cosine(grpo.product(members), norms[0], norms[1]),
            negative_with_sft=cosine(negative.product(members), norms[0], norms[2]),
        )


def layer_of(name: str) -> str:
    """The layer that a weight is part of.

    >>> layer_of("model.layers.3.mlp.up_proj.weight"), layer_of("model.embed_tokens.weight"), layer_of("h.0.ln.bias")
    ('layers.3', 'embed_tokens', 'layers.0')
    """
    match = _LAYER.search(name)
    if match:
        return f"layers.{match[1]}"
    parts = [part for part in name.split(".") if part not in ("base_model", "model", "transformer")]
    return parts[0] if parts else name
