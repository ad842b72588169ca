"""Drawing tokens: inversion of the cumulative distribution, and the usual truncations of a distribution."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_BLOCK = 256


def choose(probs_BV: Tensor, draws_B: Sequence[float]) -> Tensor:
    """One token id per row: the first whose cumulative probability exceeds the row's uniform number.

    Two levels, block sums first and then inside one block, so no sort and no pass of prefix sums over the vocabulary.
    Sums are float64: with float32 the last tokens of a large vocabulary would be lost to rounding.

    >>> choose(torch.tensor([[0.2, 0.5, 0.3], [0.2, 0.5, 0.3]]), [0.1, 0.69]).tolist()
    [0, 1]
    """
    rows, vocabulary = probs_BV.shape
    blocks = -(-vocabulary // _BLOCK)
    padded = torch.nn.functional.pad(probs_BV, (0, blocks * _BLOCK - vocabulary)).view(rows, blocks, _BLOCK)
    ends_BK = padded.sum(dim=-1, dtype=torch.float64).cumsum(dim=-1)
    target_B = torch.tensor(draws_B, dtype=torch.float64, device=probs_BV.device) * ends_BK[:, -1]
    block_B = torch.searchsorted(ends_BK, target_B[:, None], right=True)[:, 0].clamp_max(blocks - 1)
    before_B = torch.where(block_B > 0, ends_BK.gather(1, (block_B - 1).clamp_min(0)[:, None])[:, 0], 0.0)
    inside_BK = padded[torch.arange(rows, device=probs_BV.device), block_B]
    cumulative_BK = inside_BK.to(torch.float64).cumsum(dim=-1) + before_B[:, None]
    offset_B = torch.searchsorted(cumulative_BK, target_B[:, None], right=True)[:, 0]
    last_B = _BLOCK - 1 - inside_BK.flip(-1).gt(0).to(torch.int8).argmax(dim=-1)
    return block_B * _BLOCK + torch.minimum(offset_B, last_B)


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
        keep &= logprobs_BV.exp() >= min_p * logprobs_BV.exp().amax(dim=-1, keepdim=True)
    if top_p < 1:
        sorted_BV, order_BV = logprobs_BV.exp().sort(dim=-1, descending=True)
        before_BV = sorted_BV.cumsum(dim=-1) - sorted_BV
        keep &= torch.empty_like(keep).scatter_(1, order_BV, before_BV < top_p)
    if bool(keep.all()):
        return logprobs_BV
    kept = logprobs_BV.masked_fill(~keep, -torch.inf)
    return kept - kept.logsumexp(dim=-1, keepdim=True)
