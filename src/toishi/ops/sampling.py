"""Drawing tokens: inversion of the cumulative distribution, and the usual truncations of a distribution.

Decisions:
1. The vocabulary is never sorted: a draw goes through sums of blocks, top-p looks at the few likeliest tokens first.
2. A draw has a random number for its block and one for the token inside it. A boundary between two tokens is a sum of
   probabilities, so rounding moves it, and with it the answer of whoever computed in another order. One number meets any of V
   boundaries, two meet V / 256 and 256: answers of one batch and of another part a hundred times less often.
3. A truncation is a threshold, so tokens that are as likely as the last kept one stay too. What is kept then depends on the
   row alone, not on the order in which a kernel happens to put equal numbers (in bf16 there are many).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_BLOCK = 256
_FEW = 64


def choose(weights_BV: Tensor, draws_B2: Sequence[Sequence[float]]) -> Tensor:
    """One token id per row, from two uniform numbers: the first block of 256 tokens whose cumulative share of the row's weights
    exceeds the one, and in it the first token whose cumulative share of the block's weights exceeds the other.

    Weights need not sum to 1. No sort, and no pass of prefix sums over the vocabulary. Sums are added up in float64: with
    float32 the last tokens of a large vocabulary would be lost to rounding.

    >>> choose(torch.tensor([[2.0, 5.0, 3.0], [2.0, 5.0, 3.0]]), [(0.5, 0.1), (0.5, 0.69)]).tolist()
    [0, 1]
    """
    rows, vocabulary = weights_BV.shape
    blocks = -(-vocabulary // _BLOCK)
    if vocabulary % _BLOCK:
        weights_BV = torch.nn.functional.pad(weights_BV, (0, blocks * _BLOCK - vocabulary))
    numbers_B2 = torch.tensor(draws_B2, dtype=torch.float64, device=weights_BV.device)
    blocks_BKW = weights_BV.view(rows, blocks, _BLOCK)
    block_B = _first_beyond(blocks_BKW.sum(dim=-1), numbers_B2[:, :1])
    inside_BW = blocks_BKW[torch.arange(rows, device=weights_BV.device), block_B]
    # A row of NaN has no token; its number must still be one, for whoever finds out.
    return (block_B * _BLOCK + _first_beyond(inside_BW, numbers_B2[:, 1:])).clamp_max_(vocabulary - 1)


def _first_beyond(weights_BN: Tensor, draws_B1: Tensor) -> Tensor:
    """The first place whose cumulative share of the row's weights exceeds the number; never one behind the last positive."""
    ends_BN = weights_BN.cumsum(dim=-1, dtype=torch.float64)
    place_B = torch.searchsorted(ends_BN, draws_B1 * ends_BN[:, -1:], right=True)[:, 0]
    last_B = weights_BN.shape[-1] - 1 - weights_BN.flip(-1).gt(0).to(torch.int8).argmax(dim=-1)
    return torch.minimum(place_B, last_B)


def filtered(logprobs_BV: Tensor, *, top_p: float = 1.0, top_k: int = 0, min_p: float = 0.0) -> Tensor:
    """Log-probs renormalised over the tokens that top-k, top-p and min-p leave; -inf elsewhere.

    top_p keeps the smallest set of most likely tokens whose probability reaches top_p; min_p keeps tokens with at least
    min_p times the probability of the likeliest. With all three off the input comes back unchanged.

    >>> [round(p, 4) for p in filtered(torch.tensor([[0.5, 0.3, 0.2]]).log(), top_k=2).exp()[0].tolist()]
    [0.625, 0.375, 0.0]
    """
    keep = torch.ones_like(logprobs_BV, dtype=torch.bool)
    if 0 < top_k < logprobs_BV.shape[-1]:
        keep &= logprobs_BV >= logprobs_BV.topk(top_k, dim=-1).values[:, -1:]
    if min_p > 0:
        probs_BV = logprobs_BV.exp()
        keep &= probs_BV >= min_p * probs_BV.amax(dim=-1, keepdim=True)
    if top_p < 1:
        keep &= logprobs_BV >= _last_of_top_p(logprobs_BV, top_p)
    if bool(keep.all()):
        return logprobs_BV
    kept = logprobs_BV.masked_fill(~keep, -torch.inf)
    return kept - kept.logsumexp(dim=-1, keepdim=True)


def _last_of_top_p(logprobs_BV: Tensor, top_p: float) -> Tensor:
    """The log-prob (B, 1) of the least likely token among the most likely ones whose probability reaches top_p."""
    vocabulary = logprobs_BV.shape[-1]
    count = min(_FEW, vocabulary)
    while True:
        likeliest_BC = logprobs_BV.topk(count, dim=-1).values
        reached_BC = likeliest_BC.exp().cumsum(dim=-1, dtype=torch.float64)
        if count == vocabulary or bool((reached_BC[:, -1] >= top_p).all()):
            needed_B1 = (reached_BC < top_p).sum(dim=-1, keepdim=True).clamp_max_(count - 1)
            return likeliest_BC.gather(1, needed_B1)
        count = min(8 * count, vocabulary)
