"""One update of the toy: the library's objective and autograd on one road, the closed form on the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from toishi.algorithms.apply import Objective, assign_advantages, counted, token_objective
from toishi.algorithms.rows import Algorithm
from toishi.explanation.toy import closed_form
from toishi.explanation.toy.model import MAX_WORDS, Tokens, World, evaluate, group_of, initial_logits, packed
from toishi.explanation.toy.walk import Applied, Clip, Rows, State, Token
from toishi.types import Group, Rollout

CLIPS: tuple[Clip, ...] = ("free", "held_low", "held_high", "held_dual")
DEFAULT_LR = {"sgd": 2.0, "adam": 0.1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """An update before an optimizer takes it: numbers of its tokens, and the gradient by both roads, [2, V].

    by_answer, entropy_PV  what each answer and the entropy term add to the gradient
    """

    tokens: tuple[Token, ...]
    loss: float
    gradient_PV: Tensor
    autograd_PV: Tensor
    by_answer: tuple[Tensor, ...]
    entropy_PV: Tensor

    @property
    def max_difference(self) -> float:
        return (self.gradient_PV - self.autograd_PV).abs().max().item()

    @property
    def clip_fraction(self) -> float:
        return sum(token.clip != "free" for token in self.tokens) / max(1, len(self.tokens))


def scored(world: World, row: Algorithm, logits_PV: Tensor | None = None) -> tuple[Group, tuple[Rollout, ...]]:
    """The group with its advantages, and the answers that the loss averages over; seen from the model of step 0, or from these
    logits where advantages are made of what a model says of the answers."""
    seen_PV = logits_PV if row.needs_policy_before else None
    (group,) = assign_advantages([group_of(world, seen_PV)], row, max_new_tokens=MAX_WORDS)
    return group, counted([group], row)


def evaluated(world: World, row: Algorithm, rollouts: Sequence[Rollout], logits_PV: Tensor) -> Evaluated:
    """One update of the model with these logits on answers that the model of step 0 wrote."""
    if not rollouts:
        zero_PV = torch.zeros_like(logits_PV)
        return Evaluated(
            tokens=(), loss=0.0, gradient_PV=zero_PV, autograd_PV=zero_PV, by_answer=_nothing(world), entropy_PV=zero_PV
        )
    tokens = packed([rollout.completion.token_ids for rollout in rollouts])
    theta_PV = logits_PV.detach().clone().requires_grad_()
    logprobs_N, entropy_N = evaluate(theta_PV, tokens)
    old_N = evaluate(initial_logits(world), tokens)[0]
    advantages_N = torch.tensor([a for rollout in rollouts for a in rollout.advantage_per_token], dtype=torch.float64)
    objective = token_objective(
        row,
        logprobs_N=logprobs_N,
        entropy_N=entropy_N,
        old_logprobs_N=old_N,
        advantages_N=advantages_N,
        sequence_N=tokens.sequence_N,
        lengths_B=tokens.lengths_B,
        num_tokens=len(tokens.target_N),
        num_sequences=len(rollouts),
        max_length=MAX_WORDS,
        ref_logprobs_N=old_N,
        sampled_logprobs_N=old_N,
    )
    autograd_PV = _autograd(objective.loss, theta_PV)
    weights = closed_form.token_weights(
        row,
        tokens,
        advantages_N=advantages_N,
        shares_N=objective.weights_N,
        logprobs_N=logprobs_N.detach(),
        old_logprobs_N=old_N,
        ref_logprobs_N=old_N,
    )
    parts = _by_answer(world, rollouts, tokens, closed_form.token_gradients(tokens, weights.total_N, logits_PV))
    entropy_PV = closed_form.entropy_gradient(row, tokens, logits_PV)
    return Evaluated(
        tokens=_token_views(world, rollouts, tokens, objective, weights, logprobs_N.detach(), old_N, advantages_N),
        loss=objective.loss.item(),
        gradient_PV=torch.stack(parts).sum(0) + entropy_PV,
        autograd_PV=autograd_PV,
        by_answer=parts,
        entropy_PV=entropy_PV,
    )


def optimizer_for(name: str, theta_PV: Tensor, lr: float | None) -> torch.optim.Optimizer:
    """Plain SGD or Adam (betas .9 and .999, eps 1e-8) over the logits."""
    rate = DEFAULT_LR[name] if lr is None else lr
    return torch.optim.Adam([theta_PV], lr=rate) if name == "adam" else torch.optim.SGD([theta_PV], lr=rate)


def applied(world: World, optimizer: torch.optim.Optimizer, gradient_PV: Tensor) -> Applied:
    """Takes one step with that gradient; the optimizer's logits move."""
    (theta_PV,) = optimizer.param_groups[0]["params"]
    before_PV = theta_PV.detach().clone()
    theta_PV.grad = gradient_PV.clone()
    optimizer.step()
    return Applied(
        optimizer="adam" if isinstance(optimizer, torch.optim.Adam) else "sgd",
        lr=optimizer.param_groups[0]["lr"],
        change=rows(theta_PV.detach() - before_PV),
        after=state(world, theta_PV.detach()),
    )


def one_step(world: World, name: str, lr: float | None, gradient_PV: Tensor) -> Applied:
    """The first step of a fresh optimizer from the model of step 0."""
    theta_PV = initial_logits(world).requires_grad_()
    return applied(world, optimizer_for(name, theta_PV, lr), gradient_PV)


def state(world: World, logits_PV: Tensor) -> State:
    """Probabilities, expected reward, entropies, distance from the model of step 0."""
    logs_PV, start_PV = logits_PV.log_softmax(-1), initial_logits(world).log_softmax(-1)
    probs_PV = logs_PV.exp()
    entropy = (-(probs_PV * logs_PV).sum(-1)).tolist()
    kl = (probs_PV * (logs_PV - start_PV)).sum(-1).tolist()
    rewards = [reward for reward in world.rewards if reward is not None]
    known = len(rewards) == len(world.words)
    expected = (probs_PV[0] @ torch.tensor(rewards, dtype=torch.float64)).item() if known else None
    return State(
        probabilities=rows(probs_PV),
        expected_reward=expected,
        entropy=(entropy[0], entropy[1]),
        kl_from_start=(kl[0], kl[1]),
    )


def rows(table_PV: Tensor) -> Rows:
    """
    >>> rows(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    Rows(first=(1.0, 2.0), second=(3.0, 4.0))
    """
    first, second = table_PV.tolist()
    return Rows(first=tuple(first), second=tuple(second))


def _autograd(loss: Tensor, theta_PV: Tensor) -> Tensor:
    """Zeros where the loss is a constant, as for a row without any term."""
    if not loss.requires_grad:
        return torch.zeros_like(theta_PV)
    (gradient_PV,) = torch.autograd.grad(loss, theta_PV)
    return gradient_PV


def _nothing(world: World) -> tuple[Tensor, ...]:
    return tuple(torch.zeros(2, len(world.words), dtype=torch.float64) for _ in world.answers)


def _by_answer(world: World, rollouts: Sequence[Rollout], tokens: Tokens, gradients_NPV: Tensor) -> tuple[Tensor, ...]:
    parts = list(_nothing(world))
    for sequence, gradient_PV in zip(tokens.sequence_N.tolist(), gradients_NPV, strict=True):
        parts[rollouts[sequence].id.member] += gradient_PV
    return tuple(parts)


def _token_views(
    world: World,
    rollouts: Sequence[Rollout],
    tokens: Tokens,
    objective: Objective,
    weights: closed_form.TokenWeights,
    logprobs_N: Tensor,
    old_N: Tensor,
    advantages_N: Tensor,
) -> tuple[Token, ...]:
    loss_N = objective.weights_N * objective.policy_loss_N
    kl_N = torch.zeros_like(loss_N) if objective.kl_N is None else objective.kl_N
    return tuple(
        Token(
            answer=rollouts[int(tokens.sequence_N[n])].id.member + 1,
            position=int(tokens.position_N[n]) + 1,
            word=world.words[int(tokens.target_N[n])],
            logprob=logprobs_N[n].item(),
            old_logprob=old_N[n].item(),
            advantage=advantages_N[n].item(),
            ratio=objective.ratio_N[n].item(),
            clip=CLIPS[int(objective.clip_N[n])],
            share=objective.weights_N[n].item(),
            loss=loss_N[n].item(),
            kl=kl_N[n].item(),
            policy_weight=weights.policy_N[n].item(),
            kl_weight=weights.kl_N[n].item(),
            weight=weights.total_N[n].item(),
            push=0.0 - weights.total_N[n].item(),
        )
        for n in range(len(tokens.target_N))
    )
