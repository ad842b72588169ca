"""Correction for tokens that were sampled from something else than the trainer's policy.

The sampler (another engine, another precision, top-p, an older version of the weights) reports log-probs; the trainer
computes its own. With gap = logprob_trainer - logprob_sampler, `exp(gap)` is the weight that importance sampling asks for.

Decision: weights are constants (no gradient) that multiply a token's policy loss; KL and entropy terms are untouched.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


def truncated_importance(trainer_logprobs_N: Tensor, sampler_logprobs_N: Tensor, cap: float) -> Tensor:
    """`min(exp(gap), cap)`, [N]: bounded variance, biased only where the cap holds.

    >>> truncated_importance(torch.tensor([0.0, -1.0]), torch.tensor([-3.0, -1.0]), cap=2.0).tolist()
    [2.0, 1.0]
    """
    return (trainer_logprobs_N - sampler_logprobs_N).detach().exp().clamp(max=cap)


def mask(trainer_logprobs_N: Tensor, sampler_logprobs_N: Tensor, cap: float) -> Tensor:
    """`exp(gap)` for tokens where it lies in [1/cap, cap], 0 for the others, [N].

    >>> mask(torch.tensor([0.0, -1.0]), torch.tensor([-3.0, -1.0]), cap=2.0).tolist()
    [0.0, 1.0]
    """
    weights_N = (trainer_logprobs_N - sampler_logprobs_N).detach().exp()
    return torch.where((weights_N >= 1 / cap) & (weights_N <= cap), weights_N, 0.0)


def effective_sample_size(log_weights_N: Tensor) -> float:
    """`(Σ w)² / (N Σ w²)`, a share in (0, 1]: how many of N samples the weighted ones are worth.

    >>> effective_sample_size(torch.zeros(8))
    1.0
    >>> round(effective_sample_size(torch.tensor([0.0, 0.0, 0.0, -1000.0])), 2)
    0.75
    """
    weights_N = (log_weights_N - log_weights_N.max()).double().exp()  # the share does not depend on a common factor
    return (weights_N.sum().square() / (len(weights_N) * weights_N.square().sum())).item()


def gap_statistics(trainer_logprobs_N: Tensor, sampler_logprobs_N: Tensor) -> Mapping[str, float]:
    """How far the sampler's log-probs are from the trainer's, as named scalars.

        mean_abs, max_abs        of gap = trainer - sampler, nats
        kl_sampler_trainer_k3    mean of exp(gap) - gap - 1: estimates KL(sampler ‖ trainer)
        weight_mean, weight_max  of exp(gap); the mean is 1 in expectation
        effective_sample_size    of those weights

    >>> round(gap_statistics(torch.tensor([-1.0, -2.0]), torch.tensor([-1.5, -2.0]))["mean_abs"], 2)
    0.25
    """
    gap_N = (trainer_logprobs_N - sampler_logprobs_N).detach().double()
    weights_N = gap_N.exp()
    return {
        "mean_abs": gap_N.abs().mean().item(),
        "max_abs": gap_N.abs().max().item(),
        "kl_sampler_trainer_k3": (torch.expm1(gap_N) - gap_N).mean().item(),
        "weight_mean": weights_N.mean().item(),
        "weight_max": weights_N.max().item(),
        "effective_sample_size": effective_sample_size(gap_N),
    }
