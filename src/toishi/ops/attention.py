"""Softmax attention of one block of sequences, forward and backward, so that several blocks can be merged exactly.

Decisions:
1. Plain matrix products over blocks of queries. With the few dozen tokens of an answer they are several times cheaper on a CPU
   than its fused kernel, and with blocks memory grows with the number of keys, not with its square.
2. Scores and what is differentiated through the softmax are at least fp32. Probabilities enter the other products in the
   precision of the values, as in fused kernels.
3. Every query keeps its log-sum-exp. Results over disjoint keys merge by it, and the backward pass of one part takes the output
   and log-sum-exp of the whole: softmax over all keys is exp(score - log-sum-exp), whichever part the key is in
   (Dao et al. 2022, arXiv:2205.14135; merged over parts as in Liu et al. 2023, arXiv:2310.01889).

Shapes: B sequences, H key heads, R query heads per key head, Q queries, K keys, D head size, E value size.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

_SCORES_PER_BLOCK = 1 << 20
_FEWEST_QUERIES = 64


def attend(q_BHRQD: Tensor, k_BHKD: Tensor, v_BHKE: Tensor, *, scale: float, causal: bool) -> tuple[Tensor, Tensor]:
    """Output (B, H, R, Q, E) in the precision of the values, and log-sum-exp (B, H, R, Q), at least fp32.

    output = Σ_k p_k v_k with p = softmax(scale · q·k). With `causal`, query number i sees keys 0..i (as many queries as keys).

    >>> q, k, v = torch.ones(1, 1, 1, 1, 2), torch.zeros(1, 1, 2, 2), torch.tensor([[[[1.0], [3.0]]]])
    >>> output, lse = attend(q, k, v, scale=1.0, causal=False)
    >>> output.item(), round(lse.exp().item(), 6)
    (2.0, 2.0)
    """
    work = torch.promote_types(q_BHRQD.dtype, torch.float32)
    output = v_BHKE.new_empty(*q_BHRQD.shape[:4], v_BHKE.shape[-1])
    lse = q_BHRQD.new_empty(q_BHRQD.shape[:4], dtype=work)
    keys_BHDK = k_BHKD.to(work).mT
    for rows, seen in _blocks(q_BHRQD.shape, k_BHKD.shape[2], causal):
        scores = _scores(q_BHRQD[:, :, :, rows].to(work), keys_BHDK[..., :seen], scale, causal)
        probs = scores.softmax(dim=-1)
        # The largest probability is exp(largest score - lse): cheaper than adding up the exponentials once more.
        lse[:, :, :, rows] = scores.amax(dim=-1) - probs.amax(dim=-1).log_()
        output[:, :, :, rows] = _product(probs.to(v_BHKE.dtype), v_BHKE[:, :, :seen])
    return output, lse


def attend_backward(
    grad_BHRQE: Tensor, q_BHRQD: Tensor, k_BHKD: Tensor, v_BHKE: Tensor, lse_BHRQ: Tensor, delta_BHRQ: Tensor,
    *, scale: float, causal: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of queries, keys and values, at least fp32.

    lse_BHRQ    log-sum-exp of the whole that these keys are a part of; +inf for a query that takes no part
    delta_BHRQ  Σ_e output · gradient of the whole output

    With p = exp(scale · q·k - lse) and s = scale · p (gradient·v - delta): dq = s k, dk = sᵀ q, dv = pᵀ gradient.

    >>> q, k, v = torch.ones(1, 1, 1, 1, 1), torch.zeros(1, 1, 2, 1), torch.tensor([[[[1.0], [3.0]]]])
    >>> output, lse = attend(q, k, v, scale=1.0, causal=False)
    >>> dq, dk, dv = attend_backward(torch.ones_like(output), q, k, v, lse, output[..., 0], scale=1.0, causal=False)
    >>> dq.item(), dk.flatten().tolist(), [round(value, 6) for value in dv.flatten().tolist()]
    (0.0, [-0.5, 0.5], [0.5, 0.5])
    """
    work, narrow = torch.promote_types(q_BHRQD.dtype, torch.float32), q_BHRQD.dtype
    dq, dk, dv = (torch.zeros_like(tensor, dtype=work) for tensor in (q_BHRQD, k_BHKD, v_BHKE))
    keys_BHDK, values_BHEK = k_BHKD.to(work).mT, v_BHKE.to(work).mT
    for rows, seen in _blocks(q_BHRQD.shape, k_BHKD.shape[2], causal):
        queries, grad = q_BHRQD[:, :, :, rows], grad_BHRQE[:, :, :, rows]
        probs = _scores(queries.to(work), keys_BHDK[..., :seen], scale, causal)
        probs.sub_(lse_BHRQ[:, :, :, rows, None]).exp_()
        dv[:, :, :seen] += _transposed_product(probs.to(narrow), grad)
        through = _product(grad.to(work), values_BHEK[..., :seen])
        through = through.sub_(delta_BHRQ[:, :, :, rows, None]).mul_(probs).mul_(scale).to(narrow)
        dq[:, :, :, rows] = _product(through, k_BHKD[:, :, :seen])
        dk[:, :, :seen] += _transposed_product(through, queries)
    return dq, dk, dv


def merge(output: Tensor, lse: Tensor, more: Tensor, more_lse: Tensor) -> tuple[Tensor, Tensor]:
    """Attention over the keys of both: outputs (..., E) weighted by their share of the sum of exponentials (...).

    >>> one, other = torch.tensor([[1.0]]), torch.tensor([[5.0]])
    >>> both, lse = merge(one, torch.zeros(1), other, torch.tensor([3.0]).log())
    >>> both.item(), round(lse.exp().item(), 6)
    (4.0, 4.0)
    """
    share = torch.sigmoid(more_lse - lse)[..., None]
    return torch.lerp(output, more.to(output.dtype), share), torch.logaddexp(lse, more_lse)


def _blocks(queries: torch.Size, keys: int, causal: bool) -> Iterator[tuple[slice, int]]:
    """Slices of queries whose scores fit into a few MB, each with how many keys the last of them sees."""
    total = queries[3]
    size = max(_FEWEST_QUERIES, _SCORES_PER_BLOCK // max(1, keys * queries[0] * queries[1] * queries[2]))
    if causal and total > 2 * _FEWEST_QUERIES:
        size = min(size, 2 * _FEWEST_QUERIES)
    for start in range(0, total, size):
        end = min(start + size, total)
        yield slice(start, end), end if causal else keys


def _scores(queries: Tensor, keys_BHDK: Tensor, scale: float, causal: bool) -> Tensor:
    """Scaled scores (B, H, R, block, seen); with `causal` the block's queries are the last of the seen keys."""
    scores = _product(queries, keys_BHDK).mul_(scale)
    if causal:
        block, seen = scores.shape[-2:]
        hidden = torch.full((block, block), -torch.inf, dtype=scores.dtype, device=scores.device).triu_(1)
        scores[..., seen - block :].add_(hidden)
    return scores


def _product(left_BHRQX: Tensor, right_BHXY: Tensor) -> Tensor:
    """Matrix products of all query heads of a key head at once: (B, H, R, Q, Y)."""
    sequences, heads, repeats, queries, inner = left_BHRQX.shape
    left = left_BHRQX.reshape(sequences * heads, repeats * queries, inner)
    return torch.bmm(left, right_BHXY.flatten(0, 1)).view(sequences, heads, repeats, queries, -1)


def _transposed_product(left_BHRQX: Tensor, right_BHRQY: Tensor) -> Tensor:
    """Σ over query heads and queries: (B, H, X, Y)."""
    sequences, heads, repeats, queries, inner = left_BHRQX.shape
    shape = (sequences * heads, repeats * queries)
    product = torch.bmm(left_BHRQX.reshape(*shape, inner).mT, right_BHRQY.reshape(*shape, -1))
    return product.view(sequences, heads, inner, -1)
