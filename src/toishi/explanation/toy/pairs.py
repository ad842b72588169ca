"""A preference loss on the toy: the judge's best answer against its worst, without a reward and without a critic.

Decisions:
1. The pair is the library's: of the group the best and the worst, the first of several.
2. Each further update is a step of its own: how hard the pair pulls is worked out again where the model stands.
3. Two roads to the gradient: the closed form that the papers give, and autograd of the loss itself, which knows no advantages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from toishi.algorithms.preference import pair_of
from toishi.algorithms.rows import Algorithm
from toishi.algorithms.shaping import shaped
from toishi.explanation.toy.model import MAX_WORDS, Tokens, World, evaluate, group_of, initial_logits, packed
from toishi.explanation.toy.walk_beyond import Numbers, PairStep


def pair_step(world: World, row: Algorithm, logits_PV: Tensor, index: int) -> PairStep | None:
    """The pair seen by the model with these logits; None where the row compares no pairs, or there is none."""
    if row.credit != "preference":
        return None
    group = group_of(world, logits_PV)
    pair = pair_of([shaped(rollout, row, MAX_WORDS) for rollout in group.rollouts], row)
    if pair is None:
        return None
    theta_PV, start_PV = logits_PV.detach().clone().requires_grad_(), initial_logits(world)
    two = [packed([world.answers[member]]) for member in (pair.chosen, pair.rejected)]
    chosen, rejected = (_logprob(theta_PV, tokens) for tokens in two)
    chosen_ref, rejected_ref = (_logprob(start_PV, tokens) for tokens in two)
    lengths = [len(tokens.target_N) for tokens in two]
    loss = _LOSSES[row.preference](row, chosen - chosen_ref, rejected - rejected_ref, lengths)
    (autograd_PV,) = torch.autograd.grad(loss, theta_PV)
    chosen_PV, rejected_PV = (_slope(logits_PV, tokens) for tokens in two)
    gradient_PV = pair.loss.by_chosen * chosen_PV + pair.loss.by_rejected * rejected_PV
    rewards = [row.beta * ratio for ratio in (pair.chosen_ratio, pair.rejected_ratio)]
    return PairStep(
        index=index,
        chosen=pair.chosen + 1,
        rejected=pair.rejected + 1,
        beta=row.beta,
        chosen_logprob=chosen.item(),
        chosen_ref=chosen_ref.item(),
        rejected_logprob=rejected.item(),
        rejected_ref=rejected_ref.item(),
        chosen_reward=rewards[0],
        rejected_reward=rewards[1],
        apart=rewards[0] - rewards[1],
        weight=-pair.loss.by_chosen,
        rejected_weight=-pair.loss.by_rejected,
        loss=pair.loss.loss,
        chosen_slope=_two(chosen_PV),
        rejected_slope=_two(rejected_PV),
        gradient=_two(gradient_PV),
        autograd=_two(autograd_PV),
        max_difference=(gradient_PV - autograd_PV).abs().max().item(),
    )


def _logprob(logits_PV: Tensor, tokens: Tokens) -> Tensor:
    """Of the whole answer."""
    return evaluate(logits_PV, tokens)[0].sum()


def _slope(logits_PV: Tensor, tokens: Tokens) -> Tensor:
    """d log-prob of the answer / d logits: 1 for the word that was written, minus the probabilities, at each place."""
    found_PV = torch.zeros_like(logits_PV)
    for place, word in zip(tokens.position_N.tolist(), tokens.target_N.tolist(), strict=True):
        found_PV[place] -= logits_PV[place].softmax(-1)
        found_PV[place, word] += 1
    return found_PV


def _sigmoid(row: Algorithm, chosen: Tensor, rejected: Tensor, lengths: list[int]) -> Tensor:
    apart, wrong = row.beta * (chosen - rejected), row.label_smoothing
    logsigmoid = torch.nn.functional.logsigmoid
    return -(1 - wrong) * logsigmoid(apart) - wrong * logsigmoid(-apart)


def _ipo(row: Algorithm, chosen: Tensor, rejected: Tensor, lengths: list[int]) -> Tensor:
    return (chosen / lengths[0] - rejected / lengths[1] - 1 / (2 * row.beta)).square()


_LOSSES: Mapping[str, Callable[[Algorithm, Tensor, Tensor, list[int]], Tensor]] = {"sigmoid": _sigmoid, "ipo": _ipo}


def _two(table_PV: Tensor) -> tuple[Numbers, Numbers]:
    first, second = (tuple(row) for row in table_PV.tolist())
    return first, second
