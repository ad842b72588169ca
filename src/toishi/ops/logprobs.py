"""Log-probs and entropies of sampled tokens.

Decisions:
1. The temperature divides the logits of *both* quantities: the policy that is trained is the policy that was sampled.
2. The log-softmax runs in fp32 or better, whatever the logits' precision. float64 stays float64.
3. These functions see rows of logits that exist already. Whoever has many rows calls them chunk by chunk.
"""

from __future__ import annotations

import torch
from torch import Tensor


def logprobs_and_entropy(logits_NV: Tensor, targets_N: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-prob of each target and entropy (nats) of the distribution that it was drawn from.

        logprob_n = log softmax(z_n / T)[target_n]        entropy_n = -Σ_v p_v log p_v,   p = softmax(z_n / T)

    Differentiable in `logits_NV`. Logits of minus infinity mean probability 0 and add nothing to the entropy.

    logits_NV    [N, V] any floating dtype
    targets_N    [N] token ids
    temperature  the sampling temperature, > 0
    Returns two [N] tensors in float32, or float64 for float64 logits.
    Raises ValueError for a temperature that is not above 0.

    >>> logits = torch.tensor([[0.0, 0.0], [2.0, 0.0]], dtype=torch.float64)
    >>> logprobs, entropy = logprobs_and_entropy(logits, torch.tensor([1, 0]), temperature=2.0)
    >>> [round(value, 4) for value in logprobs.tolist()]
    [-0.6931, -0.3133]
    >>> [round(value, 4) for value in entropy.tolist()]
    [0.6931, 0.5822]
    """
    logprobs_NV = _log_softmax(logits_NV, temperature)
    probs_NV = logprobs_NV.exp()
    terms_NV = probs_NV * logprobs_NV.masked_fill(probs_NV == 0, 0.0)  # 0 * log 0 is 0, and so is its gradient
    return _pick(logprobs_NV, targets_N), -terms_NV.sum(-1)


def token_logprobs(logits_NV: Tensor, targets_N: Tensor, temperature: float) -> Tensor:
    """Log-prob of each target at the sampling temperature, [N]; `logprobs_and_entropy` without the entropy.

    >>> token_logprobs(torch.zeros(1, 4), torch.tensor([2]), temperature=0.7).exp().item()
    0.25
    """
    return _pick(_log_softmax(logits_NV, temperature), targets_N)


def _log_softmax(logits_NV: Tensor, temperature: float) -> Tensor:
    if not temperature > 0:
        raise ValueError(f"temperature must be above 0, got {temperature}; greedy decoding has no log-probs of its own")
    precise = logits_NV if logits_NV.dtype == torch.float64 else logits_NV.float()
    return torch.log_softmax(precise / temperature, dim=-1)


def _pick(logprobs_NV: Tensor, targets_N: Tensor) -> Tensor:
    return logprobs_NV.gather(-1, targets_N.unsqueeze(-1)).squeeze(-1)
