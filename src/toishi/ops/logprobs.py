"""Log-probs and entropies of sampled tokens.

Decisions:
1. The temperature divides the logits of *both* quantities: the policy that is trained is the policy that was sampled.
2. The log-softmax runs in fp32 or better, whatever the logits' precision. float64 stays float64.
3. These functions see rows of logits that exist already. Whoever has many rows calls them chunk by chunk.
4. A log-prob is that of the odds against all other tokens, log p = -log(1 + Σ_v≠t exp(z_v - z_t)), and so its gradient holds
   1 - p without a subtraction: 1 minus a p near 1 would keep few digits, and a confident token few of its gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

_LOWEST = -1e30
"""Stands for minus infinity: its probability is 0 as well, but 0 times it is 0."""


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
    scores_NV, target_N, others_N = _against_others(logits_NV, targets_N, temperature)
    logprobs_NV = scores_NV - torch.logaddexp(target_N, others_N).unsqueeze(-1)
    probs_NV = logprobs_NV.exp()
    terms_NV = probs_NV * logprobs_NV.masked_fill(probs_NV == 0, 0.0)  # 0 * log 0 is 0, and so is its gradient
    return logsigmoid(target_N - others_N), -terms_NV.sum(-1)


def token_logprobs(logits_NV: Tensor, targets_N: Tensor, temperature: float) -> Tensor:
    """Log-prob of each target at the sampling temperature, [N]; `logprobs_and_entropy` without the entropy.

    >>> token_logprobs(torch.zeros(1, 4), torch.tensor([2]), temperature=0.7).exp().item()
    0.25
    """
    _, target_N, others_N = _against_others(logits_NV, targets_N, temperature)
    return logsigmoid(target_N - others_N)


def _against_others(logits_NV: Tensor, targets_N: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """z / T with its largest at 0, the target's, and the log of the sum of all others' exponentials."""
    if not temperature > 0:
        raise ValueError(f"temperature must be above 0, got {temperature}; greedy decoding has no log-probs of its own")
    precise_NV = logits_NV if logits_NV.dtype == torch.float64 else logits_NV.float()
    scores_NV = (precise_NV / temperature).clamp(min=_LOWEST)
    scores_NV = scores_NV - scores_NV.detach().amax(-1, keepdim=True)
    targets_N1 = targets_N.unsqueeze(-1)
    target_N = scores_NV.gather(-1, targets_N1).squeeze(-1)
    return scores_NV, target_N, torch.logsumexp(scores_NV.scatter(-1, targets_N1, _LOWEST), -1)
