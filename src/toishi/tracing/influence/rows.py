"""Whose gradients: every watched text, the numbers it was learned with, and the terms that no advantage multiplies.

Decisions:
1. A row is the gradient of a whole text's log-prob. Equal answers to one prompt share a row.
2. A token's weight in the loss is linear in the advantage while ratios are 1, which they are in a step's only update, on either
   side of 0: unlikelihood pushes other than likelihood. The weight per unit of advantage comes from the library's own
   objective at an advantage of 1 or -1, so no algorithm is known here by name. Where weights vary inside an answer, what the
   advantage multiplies is another direction than the text's own: it gets a row of its own.
3. KL and entropy terms are one row for all answers together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from toishi.algorithms.apply import counted, token_objective
from toishi.algorithms.rows import Algorithm
from toishi.tracing.watched import Watched
from toishi.types import Group, Rollout, RolloutId
from toishi.update import UpdateSettings

_SAME = 1e-9
"""Relative spread of token weights up to which they are the same number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One text through the model, and what of it is differentiated: Σ pushes · log-prob + entropy_push · Σ entropy.

    row  where its gradient is added
    """

    rollout: Rollout
    row: int
    pushes: tuple[float, ...]
    entropy_push: float
    temperature: float

    @property
    def prompt_ids(self) -> tuple[int, ...]:
        return self.rollout.prompt.token_ids

    @property
    def input_ids(self) -> tuple[int, ...]:
        """What is fed: the last token predicts nothing."""
        return (*self.prompt_ids, *self.rollout.completion.token_ids[:-1])

    @property
    def places(self) -> list[int]:
        """The answer's tokens with loss."""
        return _trained(self.rollout)

    @property
    def positions(self) -> list[int]:
        """The fed positions that predict them."""
        return [len(self.rollout.prompt.token_ids) - 1 + place for place in self.places]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """How an answer was learned from: coefficient = weight · advantage multiplies the gradient in `row`."""

    row: int
    weight: float
    advantage: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """All rows, and what is to be run for them.

    texts    watched text -> its row
    sources  answer -> how it was learned from
    fixed    the row of terms without an advantage; None without such terms
    """

    passes: tuple[Pass, ...]
    num_rows: int
    texts: Mapping[RolloutId, int]
    sources: Mapping[RolloutId, Source]
    fixed: int | None


def make_rows(
    watched: Sequence[Watched],
    groups: Sequence[Group],
    settings: UpdateSettings,
    before: Mapping[RolloutId, Sequence[float]],
) -> Rows:
    """before  log-probs of every answer before the update, 0 at positions without loss."""
    unit, fix = token_pushes(groups, settings, before)
    able = [item.rollout for item in watched if any(item.rollout.completion.loss_mask)]
    learned = {rollout.id: _profile(rollout, unit[rollout.id]) for rollout in able if rollout.id in unit}
    wanted = {_key(rollout, _ones(rollout)): rollout for rollout in able}
    wanted |= {_key(rollout, learned[rollout.id][2]): rollout for rollout in able if rollout.id in learned}
    # Rows stand prompt by prompt and follow the lengths of their texts, so that those which run side by side are neighbours.
    prompts = list(dict.fromkeys(key[0] for key in wanted))
    row_of = {key: row for row, key in enumerate(sorted(wanted, key=lambda key: (prompts.index(key[0]), len(key[1]))))}
    passes = [_pass(wanted[key], row, key[2], 0.0, settings) for key, row in row_of.items()]
    texts = {rollout.id: row_of[_key(rollout, _ones(rollout))] for rollout in able}
    sources = {
        rollout.id: Source(row=row_of[_key(rollout, profile)], weight=weight, advantage=advantage)
        for rollout in able
        if rollout.id in learned
        for weight, advantage, profile in [learned[rollout.id]]
    }
    fixed = None
    if settings.algorithm.moves_without_advantage:
        fixed = len(passes)
        slope = settings.algorithm.entropy_coef / max(1, sum(sum(r.completion.loss_mask) for r in able if r.id in unit))
        learned_from = sorted((r for r in able if r.id in unit), key=lambda r: row_of[_key(r, _ones(r))])
        passes += [_pass(r, fixed, fix[r.id], slope, settings) for r in learned_from]
    return Rows(passes=tuple(passes), num_rows=len(row_of) + (fixed is not None), texts=texts, sources=sources, fixed=fixed)


def _key(rollout: Rollout, pushes: Sequence[float]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[float, ...]]:
    return rollout.prompt.token_ids, rollout.completion.token_ids, tuple(pushes)


def token_pushes(
    groups: Sequence[Group], settings: UpdateSettings, before: Mapping[RolloutId, Sequence[float]]
) -> tuple[dict[RolloutId, tuple[float, ...]], dict[RolloutId, tuple[float, ...]]]:
    """Of every answer that the loss averages over: minus d loss / d log-prob of the policy term by its advantage (at 1 or -1,
    as its sign is), and minus that of the terms without an advantage, token by token; 0 at positions without loss."""
    rollouts = counted(groups, settings.algorithm)
    if not rollouts:
        return {}, {}
    plain = settings.algorithm.model_copy(update={"kl_coef": 0.0, "entropy_coef": 0.0, "kl": "none"})
    signs = [[-1.0 if advantage < 0 else 1.0 for advantage in rollout.advantage_per_token] for rollout in rollouts]
    signed = _slopes(rollouts, plain, settings, before, signs)
    unit = {
        rollout.id: tuple(sign * slope for sign, slope in zip(of_answer, signed[rollout.id], strict=True))
        for rollout, of_answer in zip(rollouts, signs, strict=True)
    }
    zeros = [[0.0] * rollout.completion.num_tokens for rollout in rollouts]
    fix = _slopes(rollouts, settings.algorithm.model_copy(update={"entropy_coef": 0.0}), settings, before, zeros)
    return unit, fix


def _slopes(
    rollouts: Sequence[Rollout],
    row: Algorithm,
    settings: UpdateSettings,
    before: Mapping[RolloutId, Sequence[float]],
    advantages: Sequence[Sequence[float]],
) -> dict[RolloutId, tuple[float, ...]]:
    def flat(values: Sequence[Sequence[float]]) -> Tensor:
        picked = [
            value
            for rollout, numbers in zip(rollouts, values, strict=True)
            for value, trained in zip(numbers, rollout.completion.loss_mask, strict=True)
            if trained
        ]
        return torch.tensor(picked, dtype=torch.float64)

    lengths = [sum(rollout.completion.loss_mask) for rollout in rollouts]
    logprobs_N = flat([before[rollout.id] for rollout in rollouts]).requires_grad_()
    reference = [rollout.ref_logprobs for rollout in rollouts if rollout.ref_logprobs is not None]
    sampled = [rollout.completion.sampled_logprobs for rollout in rollouts if rollout.completion.sampled_logprobs]
    with torch.enable_grad():
        objective = token_objective(
            row,
            logprobs_N=logprobs_N,
            entropy_N=torch.zeros_like(logprobs_N),
            old_logprobs_N=logprobs_N.detach(),
            advantages_N=flat(advantages),
            sequence_N=torch.repeat_interleave(torch.arange(len(rollouts)), torch.tensor(lengths)),
            lengths_B=torch.tensor(lengths),
            num_tokens=sum(lengths),
            num_sequences=len(rollouts),
            max_length=settings.max_new_tokens,
            ref_logprobs_N=flat(reference) if len(reference) == len(rollouts) else None,
            sampled_logprobs_N=flat(sampled) if len(sampled) == len(rollouts) else None,
        )
        if not objective.loss.requires_grad:  # a row without such a term
            return {rollout.id: (0.0,) * rollout.completion.num_tokens for rollout in rollouts}
        (slopes_N,) = torch.autograd.grad(objective.loss, [logprobs_N], allow_unused=True, materialize_grads=True)
    values = iter((-slopes_N).tolist())
    return {
        rollout.id: tuple(next(values) if trained else 0.0 for trained in rollout.completion.loss_mask) for rollout in rollouts
    }


def _profile(rollout: Rollout, unit: Sequence[float]) -> tuple[float, float, tuple[float, ...]]:
    """(weight, advantage, profile): the answer's push is weight · advantage · Σ profile · ∇ log-prob."""
    places = _trained(rollout)
    per_token = rollout.advantage_per_token
    advantages = [per_token[place] for place in places]
    mean = sum(advantages) / len(places)
    if max(advantages) - min(advantages) > _SAME * max(map(abs, advantages)):
        scale = max(abs(per_token[place] * unit[place]) for place in places) or 1.0
        weight, mean = (scale / mean, mean) if mean else (scale, 1.0)
        pushes = [per_token[place] * unit[place] / scale for place in places]
    else:
        weight = sum(unit[place] for place in places) / len(places)
        pushes = [unit[place] / weight if weight else 1.0 for place in places]
    if all(abs(push - 1.0) <= _SAME for push in pushes):
        return weight, mean, _ones(rollout)
    spread = dict(zip(places, pushes, strict=True))
    return weight, mean, tuple(spread.get(place, 0.0) for place in range(rollout.completion.num_tokens))


def _pass(rollout: Rollout, row: int, pushes: Sequence[float], entropy: float, settings: UpdateSettings) -> Pass:
    return Pass(rollout=rollout, row=row, pushes=tuple(pushes), entropy_push=entropy, temperature=settings.temperature)


def _ones(rollout: Rollout) -> tuple[float, ...]:
    return tuple(float(trained) for trained in rollout.completion.loss_mask)


def _trained(rollout: Rollout) -> list[int]:
    return [place for place, trained in enumerate(rollout.completion.loss_mask) if trained]
