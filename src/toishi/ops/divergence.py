"""How far two next-token distributions are apart, for distillation: a student q and a teacher p.

    D_0 = KL(p ‖ q)                                    β = 0: the student is to cover all that the teacher might say
    D_1 = KL(q ‖ p)                                    β = 1: the student is to say only what the teacher might say
    D_β = β KL(p ‖ m) + (1 - β) KL(q ‖ m)              between: the generalised Jensen-Shannon divergence, m = β p + (1 - β) q

(GKD, arXiv 2306.13649, eq. 1.) In nats. Between the ends D_β is at most β log(1/β) + (1 - β) log(1/(1 - β)), and goes to 0
towards them; at the ends themselves KL takes its place, as GKD's authors and TRL have it.

Decisions:
1. Positions are taken a block at a time, and what a block made is dropped and made again in the backward pass: the logits of
   all positions never exist, whatever way they are reached.
2. A teacher of whom only the likeliest words are known is compared on those words and one event for all others. Merging events
   can only bring two distributions nearer, so that is a lower bound, with equality where the student spreads the rest as the
   teacher does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

BLOCK_NUMBERS = 1 << 22
"""Logits of a block of positions on a CPU: 16 MB of fp32."""
BLOCK_NUMBERS_DEVICE = 1 << 26
"""And on an accelerator."""
_LOWEST = -1e30
_LEAST_REST = 1e-12

Compared = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Some places (n,) -> log-probs of student and of teacher there, over the same events, both (n, K)."""


def divergence(student_nK: Tensor, teacher_nK: Tensor, beta: float) -> Tensor:
    """D_β of each row, (n,), from log-probs over the same K events; differentiable in the student's:

        d D_β / d z_v = (1 - β) q_v (log q_v - log m_v - KL(q ‖ m)),    q_v - p_v at β = 0,    q_v (log q_v/p_v - D_1) at β = 1

    with z the student's logits.
    beta  in [0, 1]; ValueError otherwise

    Student (.5, .5), teacher (.9, .1):

    >>> student, teacher = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.9, 0.1]]).log()
    >>> [round(divergence(student, teacher, beta).item(), 5) for beta in (0.0, 1.0, 0.5)]
    [0.36806, 0.51083, 0.10175]
    """
    if not 0 <= beta <= 1:
        raise ValueError(f"beta must be in [0, 1], got {beta}")
    student_nK, teacher_nK = student_nK.clamp(min=_LOWEST), teacher_nK.clamp(min=_LOWEST)
    if beta == 0:
        return _kl(teacher_nK, student_nK)
    if beta == 1:
        return _kl(student_nK, teacher_nK)
    of_teacher, of_student = torch.tensor([beta, 1 - beta], dtype=student_nK.dtype, device=student_nK.device).log()
    mixed_nK = torch.logaddexp(teacher_nK + of_teacher, student_nK + of_student)
    return beta * _kl(teacher_nK, mixed_nK) + (1 - beta) * _kl(student_nK, mixed_nK)


def _kl(one_nK: Tensor, other_nK: Tensor) -> Tensor:
    return (one_nK.exp() * (one_nK - other_nK)).sum(1)


def with_rest(logprobs_nV: Tensor, known_nK: Tensor) -> Tensor:
    """Log-probs of the known words and of all others together, (n, K + 1).

    known_nK  token ids, no id twice in a row

    >>> with_rest(torch.tensor([[0.5, 0.25, 0.125, 0.125]]).log(), torch.tensor([[1, 0]])).exp().tolist()
    [[0.25, 0.5, 0.25]]
    """
    rest_nV = logprobs_nV.scatter(1, known_nK, -torch.inf)
    return torch.cat([logprobs_nV.gather(1, known_nK), rest_nV.logsumexp(1, keepdim=True)], dim=1)


def completed(known_nK: Tensor) -> Tensor:
    """The same of log-probs that are told for K words alone: what they leave is one more event, (n, K + 1).

    >>> [round(p, 6) for p in completed(torch.tensor([[0.5, 0.25]], dtype=torch.float64).log()).exp()[0].tolist()]
    [0.5, 0.25, 0.25]
    """
    rest_n1 = (1 - known_nK.exp().sum(1, keepdim=True)).clamp(min=_LEAST_REST).log()
    return torch.cat([known_nK, rest_n1], dim=1)


def divergences(compared: Compared, num_places: int, num_events: int, beta: float, device: torch.device) -> Tensor:
    """D_β at every place, (N,), a block of places at a time. Differentiable through what `compared` gives for the student."""
    numbers = BLOCK_NUMBERS if device.type == "cpu" else BLOCK_NUMBERS_DEVICE
    places_N = torch.arange(num_places, device=device)
    block = partial(_block, compared, beta)
    parts = [
        checkpoint(block, places_n, use_reentrant=False, preserve_rng_state=False)
        for places_n in torch.split(places_N, max(1, numbers // num_events))
    ]
    return torch.cat(parts)


def _block(compared: Compared, beta: float, places_n: Tensor) -> Tensor:
    student_nK, teacher_nK = compared(places_n)
    return divergence(student_nK, teacher_nK, beta)
