"""Importance ratios and the surrogate losses built on them.

Decisions:
1. A surrogate gives a loss per token and a code per token that says whether its gradient was held, so that clipping is
   a fact about a token and not only a share in a log.
2. A sequence-level ratio is broadcast to the tokens of its sequence with the whole gradient kept: the mean over a
   sequence's tokens is then that sequence's loss. Use it with `sequence_mean_token_mean`.
3. A held token is cut by selection (`where`), not by the minimum of two numbers, so that its gradient is exactly 0 and
   a token on the bound is exactly free.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

MAX_LOG_RATIO = 80.0
"""Beyond e^80 a ratio is held there: float32 would overflow, and a cut gradient times infinity is NaN, not 0."""

FREE, HELD_LOW, HELD_HIGH, HELD_DUAL = 0, 1, 2, 3
"""Clip codes: free · held at the lower bound · held at the upper bound · held by the dual clip."""


def importance_ratio(logprobs_N: Tensor, old_logprobs_N: Tensor, sequence_N: Tensor, num_sequences: int, level: str) -> Tensor:
    """policy / old policy for each token, [N], differentiable in `logprobs_N`.

        token           exp(logprob - logprob_old)
        sequence_mean   exp(mean over the sequence's tokens of the difference)      GSPO, arXiv 2507.18071
        sequence_sum    exp(sum over the sequence's tokens)                         RLOO, arXiv 2402.14740

    Sequence levels need every token of a sequence in the same call; only tokens with loss may be in N.

    sequence_N     [N] index of each token's sequence in 0..num_sequences-1
    num_sequences  sequences at hand (of this call, not of the update)

    >>> new, old, sequence = torch.tensor([-1.0, -1.0, -2.0]), torch.tensor([-1.5, -1.7, -2.0]), torch.tensor([0, 0, 1])
    >>> for level in LEVELS:
    ...     print(level, [round(r, 3) for r in importance_ratio(new, old, sequence, 2, level).tolist()])
    token [1.649, 2.014, 1.0]
    sequence_mean [1.822, 1.822, 1.0]
    sequence_sum [3.32, 3.32, 1.0]
    """
    if level not in LEVELS:
        raise ValueError(f"unknown ratio level '{level}'; known: {', '.join(LEVELS)}")
    log_ratio_N = logprobs_N - old_logprobs_N.detach()
    if level == "token":
        return _exp(log_ratio_N)
    sums_B = log_ratio_N.new_zeros(num_sequences).index_add(0, sequence_N, log_ratio_N)
    if level == "sequence_mean":
        counts_B = torch.bincount(sequence_N, minlength=num_sequences).clamp(min=1)
        sums_B = sums_B / counts_B
    return _exp(sums_B)[sequence_N]


LEVELS = ("token", "sequence_mean", "sequence_sum")


def score_function(
    logprobs_N: Tensor, ratio_N: Tensor, advantages_N: Tensor, clip_low: float, clip_high: float, dual_clip: float
) -> tuple[Tensor, Tensor]:
    """`-A · logprob`: plain REINFORCE, no ratio, nothing held.

    >>> loss, clip = score_function(torch.tensor([-0.5]), torch.tensor([9.0]), torch.tensor([2.0]), 0.2, 0.2, 3.0)
    >>> loss.tolist(), clip.tolist()
    ([1.0], [0])
    """
    return -advantages_N * logprobs_N, torch.zeros_like(advantages_N, dtype=torch.int8)


def clipped(
    logprobs_N: Tensor, ratio_N: Tensor, advantages_N: Tensor, clip_low: float, clip_high: float, dual_clip: float
) -> tuple[Tensor, Tensor]:
    """`-min(ratio · A, clip(ratio, 1 - low, 1 + high) · A)`: PPO (arXiv 1707.06347), unequal bounds as in DAPO.

    Held are the tokens that have already moved far enough in the direction that their advantage asks for:
    A > 0 and ratio > 1 + high, or A < 0 and ratio < 1 - low.

    >>> ratio, advantages = torch.tensor([1.3, 1.3, 0.7, 0.7]), torch.tensor([1.0, -1.0, 1.0, -1.0])
    >>> loss, clip = clipped(ratio.log(), ratio, advantages, 0.2, 0.2, 3.0)
    >>> [round(value, 2) for value in loss.tolist()], clip.tolist()
    ([-1.2, 1.3, -0.7, 0.8], [2, 0, 0, 1])
    """
    low_N = (advantages_N < 0) & (ratio_N < 1 - clip_low)
    high_N = (advantages_N > 0) & (ratio_N > 1 + clip_high)
    held_N = torch.where(low_N, 1 - clip_low, torch.where(high_N, 1 + clip_high, ratio_N))
    return -advantages_N * held_N, _codes(low_N, high_N)


def dual_clip(
    logprobs_N: Tensor, ratio_N: Tensor, advantages_N: Tensor, clip_low: float, clip_high: float, dual_clip: float
) -> tuple[Tensor, Tensor]:
    """`clipped`, and for A < 0 never more than `-c · A` (arXiv 1912.09729): one bad token cannot blow up the loss.

    >>> ratio, advantages = torch.tensor([5.0, 5.0]), torch.tensor([-1.0, 1.0])
    >>> loss, clip = dual_clip(ratio.log(), ratio, advantages, 0.2, 0.2, 3.0)
    >>> [round(value, 2) for value in loss.tolist()], clip.tolist()
    ([3.0, -1.2], [3, 2])
    """
    loss_N, clip_N = clipped(logprobs_N, ratio_N, advantages_N, clip_low, clip_high, dual_clip)
    dual_N = (advantages_N < 0) & (ratio_N > dual_clip)
    return torch.where(dual_N, -dual_clip * advantages_N, loss_N), clip_N.masked_fill(dual_N, HELD_DUAL)


def stop_gradient(
    logprobs_N: Tensor, ratio_N: Tensor, advantages_N: Tensor, clip_low: float, clip_high: float, dual_clip: float
) -> tuple[Tensor, Tensor]:
    """`-sg(clip(ratio, 1 - low, 1 + high)) · A · logprob`: CISPO (arXiv 2506.13585). The weight is capped, no token is dropped.

    The codes say that the *weight* was capped; the token's gradient stays.

    >>> ratio = torch.tensor([9.0])
    >>> loss, clip = stop_gradient(torch.tensor([-0.5]), ratio, torch.tensor([1.0]), 1.0, 4.0, 3.0)
    >>> loss.tolist(), clip.tolist()
    ([2.5], [2])
    """
    weight_N = ratio_N.detach().clamp(1 - clip_low, 1 + clip_high)
    return -weight_N * advantages_N * logprobs_N, _codes(ratio_N < 1 - clip_low, ratio_N > 1 + clip_high)


def dynamic(
    logprobs_N: Tensor, ratio_N: Tensor, advantages_N: Tensor, clip_low: float, clip_high: float, dual_clip: float
) -> tuple[Tensor, Tensor]:
    """`-A · sg(p) · log p`, p the token's probability: DFT (arXiv 2508.05629). Tokens that the model finds unlikely pull less.

    >>> logprobs = torch.tensor([0.5]).log()
    >>> loss, clip = dynamic(logprobs, torch.ones(1), torch.tensor([2.0]), 0.2, 0.2, 3.0)
    >>> round(loss.item(), 4), clip.tolist()
    (0.6931, [0])
    """
    return -advantages_N * logprobs_N.detach().exp() * logprobs_N, torch.zeros_like(advantages_N, dtype=torch.int8)


def unlikelihood(
    logprobs_N: Tensor, ratio_N: Tensor, advantages_N: Tensor, clip_low: float, clip_high: float, dual_clip: float
) -> tuple[Tensor, Tensor]:
    """`-A · log p` for A >= 0, `-|A| · log(1 - p)` for A < 0 (arXiv 1908.04319): unlike A · log p, bounded below as p falls.

    p is held below 1 - 1e-6, where the second has its pole; d loss / d log p of it is |A| p / (1 - p).

    >>> logprobs = torch.tensor([0.25, 0.25]).log()
    >>> loss, clip = unlikelihood(logprobs, torch.ones(2), torch.tensor([1.0, -1.0]), 0.2, 0.2, 3.0)
    >>> [round(value, 4) for value in loss.tolist()], clip.tolist()
    ([1.3863, 0.2877], [0, 0])
    """
    log_rest_N = torch.log(-torch.expm1(logprobs_N.clamp(max=-LEAST_REST)))
    loss_N = torch.where(advantages_N < 0, advantages_N * log_rest_N, -advantages_N * logprobs_N)
    return loss_N, torch.zeros_like(advantages_N, dtype=torch.int8)


LEAST_REST = 1e-6
"""What is left of the probability at least, where 1 - p is divided by."""


def _exp(log_ratio: Tensor) -> Tensor:
    return log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def _codes(low_N: Tensor, high_N: Tensor) -> Tensor:
    return low_N.to(torch.int8) * HELD_LOW + high_N.to(torch.int8) * HELD_HIGH


SURROGATES: Mapping[str, Callable[[Tensor, Tensor, Tensor, float, float, float], tuple[Tensor, Tensor]]] = {
    "score_function": score_function,
    "clipped": clipped,
    "dual_clip": dual_clip,
    "stop_gradient": stop_gradient,
    "dynamic": dynamic,
    "unlikelihood": unlikelihood,
}
