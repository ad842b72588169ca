"""From one loss per token to one number: the weight of every token.

Decisions:
1. Denominators are arguments that count the *whole optimizer update*, never the micro-batch at hand. A loss is then a
   plain sum over tokens, and any split into micro-batches gives the same gradient.
2. The reduction is a vector of weights, so that a token's share can be recorded and shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor


def token_weights(
    sequence_N: Tensor,
    lengths_B: Tensor,
    reduction: str,
    *,
    num_tokens: int,
    num_sequences: int,
    max_length: int,
    dtype: torch.dtype = torch.float64,
) -> Tensor:
    """Weights such that loss = Σ_n weights_n · loss_n.

        token_mean                  1 / num_tokens                       DAPO
        sequence_mean_token_mean    1 / (num_sequences · length)         GRPO
        sequence_sum                1 / num_sequences                    REINFORCE
        constant_length             1 / (num_sequences · max_length)     Dr.GRPO

    sequence_N     [N] row of `lengths_B` that each token belongs to
    lengths_B      [B] tokens with loss of each sequence at hand
    num_tokens, num_sequences  of the whole optimizer update, tokens with loss only
    max_length     the token limit of a completion
    Raises ValueError for an unknown reduction or a denominator below 1.

    Two answers of 1 and 3 tokens, each reduction's total weight of the long one: 3/4, 1/2, 3/2, 3/8 (limit 4).

    >>> sequence, lengths = torch.tensor([0, 1, 1, 1]), torch.tensor([1, 3])
    >>> for name in WEIGHTS:
    ...     weights = token_weights(sequence, lengths, name, num_tokens=4, num_sequences=2, max_length=4)
    ...     print(name, round(weights[1:].sum().item(), 4))
    token_mean 0.75
    sequence_mean_token_mean 0.5
    sequence_sum 1.5
    constant_length 0.375
    """
    if reduction not in WEIGHTS:
        raise ValueError(f"unknown reduction '{reduction}'; known: {', '.join(WEIGHTS)}")
    if min(num_tokens, num_sequences, max_length) < 1:
        raise ValueError(
            f"denominators must be at least 1, got num_tokens={num_tokens}, num_sequences={num_sequences}, "
            f"max_length={max_length}; an update without a token must be skipped, not averaged"
        )
    lengths_N = lengths_B.to(dtype)[sequence_N]
    return WEIGHTS[reduction](lengths_N, num_tokens, num_sequences, max_length)


WEIGHTS: Mapping[str, Callable[[Tensor, int, int, int], Tensor]] = {
    "token_mean": lambda lengths_N, tokens, sequences, limit: torch.full_like(lengths_N, 1 / tokens),
    "sequence_mean_token_mean": lambda lengths_N, tokens, sequences, limit: 1 / (sequences * lengths_N),
    "sequence_sum": lambda lengths_N, tokens, sequences, limit: torch.full_like(lengths_N, 1 / sequences),
    "constant_length": lambda lengths_N, tokens, sequences, limit: torch.full_like(lengths_N, 1 / (sequences * limit)),
}
