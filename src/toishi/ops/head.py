"""Log-probs and entropies from hidden states: the vocabulary head without its logits.

Decisions:
1. A vocabulary is far wider than a hidden state: logits, their softmax and its gradient would be the largest tensors of a
   training pass. Here they exist for a slice of the vocabulary at a time, in the forward pass (running maximum and sums) and
   again in the backward pass.
2. Slices of the vocabulary, not of the tokens: with the log-sum-exp of the forward pass kept, each slice's gradient is complete
   by itself, so every row of the weight's gradient is one product over all tokens and nothing is added up in low precision.
   Only the hidden states' gradient is summed over slices, in fp32.
3. Products run in the precision of the weight; scale, soft-cap, softmax and entropy in fp32 (fp64 for fp64).
4. The target is left out of the sums, which then are those of the odds against it: log p = -log(1 + e^x), 1 - p = σ(x) with
   x = log Σ_v≠t exp(z_v) - z_t. No 1 - p is subtracted: with p near 1 it would keep few digits, and a confident token few of
   its gradient.
5. A slice is as wide as a cache holds; its width depends on the number of tokens alone, so equal inputs give equal bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import logsigmoid

SLICE_NUMBERS = 1 << 19
"""Logits that exist at a time on a CPU: 2 MB of fp32."""
SLICE_NUMBERS_DEVICE = 1 << 26
"""And on an accelerator, where large products pay more than a cache."""
MIN_SLICE = 256
"""Words in a slice at least: narrower products are slow."""
_LOWEST = -1e30


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What a causal language model does from its last hidden state h to its logits: z = cap(scale · (h Wᵀ + b)).

    weight_VD  [V, D]
    bias_V     [V] or None
    scale      multiplies the product
    softcap    cap(z) = softcap · tanh(z / softcap); None = no cap
    take       called in the backward pass with each slice of the vocabulary and the weight's gradient [S, D] there, once a
               slice; autograd then gives the weight none. The whole gradient is as large as the weight, and would wait through
               the rest of the pass. None: autograd gives it as always
    """

    weight_VD: Tensor
    bias_V: Tensor | None = None
    scale: float = 1.0
    softcap: float | None = None
    take: Callable[[slice, Tensor], None] | None = None


def head_logits(hidden_ND: Tensor, head: Head) -> Tensor:
    """All logits (N, V) of some hidden states, in float32, or float64 for a float64 head. For few positions at a time.

    >>> head = Head(weight_VD=torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]]), scale=0.5)
    >>> head_logits(torch.tensor([[4.0, 1.0]]), head).tolist()
    [[2.0, 1.0, 2.5]]
    """
    return _capped(torch.nn.functional.linear(hidden_ND, head.weight_VD, head.bias_V), head.scale, head.softcap)


def head_logprobs_and_entropy(hidden_ND: Tensor, head: Head, targets_N: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-prob of each target and entropy (nats), as `logprobs_and_entropy` gives them for the head's logits z:

        logprob_n = z_n[target_n] / T - lse_n        lse_n = log Σ_v exp(z_nv / T)
        entropy_n = lse_n - Σ_v p_nv z_nv / T        p = softmax(z / T)

    Differentiable in hidden states, weight and bias, once:

        d logprob_n / d z_nv = (1[v = target_n] - p_nv) / T        d entropy_n / d z_nv = -p_nv (log p_nv + entropy_n) / T

    hidden_ND    [N, D] in the precision of the weight
    targets_N    [N] token ids
    temperature  the sampling temperature, > 0
    Returns two [N] tensors in float32, or float64 for a float64 head.
    Raises ValueError for a temperature that is not above 0.

    >>> head = Head(weight_VD=torch.tensor([[2.0], [0.0]], dtype=torch.float64))
    >>> hidden = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    >>> logprobs, entropy = head_logprobs_and_entropy(hidden, head, torch.tensor([1, 0]), temperature=2.0)
    >>> [round(value, 4) for value in logprobs.tolist()], [round(value, 4) for value in entropy.tolist()]
    ([-0.6931, -0.3133], [0.6931, 0.5822])
    """
    if not temperature > 0:
        raise ValueError(f"temperature must be above 0, got {temperature}; greedy decoding has no log-probs of its own")
    return _HeadLogprobs.apply(  # type: ignore[no-any-return,no-untyped-call]
        hidden_ND, head.weight_VD, head.bias_V, targets_N, head.scale, head.softcap, temperature, head.take
    )


class _HeadLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        targets_N: Tensor,
        scale: float,
        softcap: float | None,
        temperature: float,
        take: Callable[[slice, Tensor], None] | None,
    ) -> tuple[Tensor, Tensor]:
        top_N1 = torch.full_like(targets_N[:, None], 2 * _LOWEST, dtype=_wide(weight_VD.dtype))  # of all words but the target
        sum_N1, moment_N1 = torch.zeros_like(top_N1), torch.zeros_like(top_N1)  # Σ e^(z - top), Σ e^(z - top) (z - top)
        target_N1 = torch.full_like(top_N1, float("nan"))
        for part in _slices(hidden_ND, weight_VD):
            z_NS = _logits(hidden_ND, weight_VD, bias_V, part, scale, softcap).div_(temperature)
            here_N1, inside_N1 = _places(targets_N, part)
            found_N1 = z_NS.gather(1, here_N1)
            target_N1 = torch.where(inside_N1, found_N1, target_N1)
            z_NS.scatter_(1, here_N1, torch.where(inside_N1, _LOWEST, found_N1))
            old_N1 = top_N1
            top_N1 = torch.maximum(old_N1, z_NS.amax(1, keepdim=True))
            shift_N1 = old_N1 - top_N1
            e_NS = z_NS.sub_(top_N1).exp()
            moment_N1 = (moment_N1 + sum_N1 * shift_N1) * shift_N1.exp()
            sum_N1 = sum_N1 * shift_N1.exp() + e_NS.sum(1, keepdim=True)
            moment_N1 += e_NS.mul_(z_NS).sum(1, keepdim=True)
        log_N1 = sum_N1.log()
        odds_N1 = top_N1 - target_N1 + log_N1
        logprob_N1, log_miss_N1 = logsigmoid(-odds_N1), logsigmoid(odds_N1)
        miss_N1 = odds_N1.sigmoid()
        entropy_N1 = miss_N1 * (log_N1 - moment_N1 / sum_N1 - log_miss_N1) - logprob_N1.exp() * logprob_N1
        ctx.save_for_backward(
            hidden_ND, weight_VD, bias_V, targets_N, top_N1, log_miss_N1 - log_N1, miss_N1, logprob_N1, entropy_N1
        )
        ctx.numbers, ctx.take = (scale, softcap, temperature), take
        ctx.set_materialize_grads(False)
        return logprob_N1[:, 0].clone(), entropy_N1[:, 0].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_logprobs_N: Tensor | None, d_entropy_N: Tensor | None) -> tuple[Tensor | None, ...]:
        hidden_ND, weight_VD, bias_V, targets_N, top_N1, shift_N1, miss_N1, logprob_N1, entropy_N1 = ctx.saved_tensors
        scale, softcap, temperature = ctx.numbers
        needs_hidden, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        d_hidden_ND = torch.zeros_like(hidden_ND, dtype=top_N1.dtype) if needs_hidden else None
        d_weight_VD = torch.empty_like(weight_VD) if needs_weight and ctx.take is None else None
        d_bias_V = torch.empty_like(bias_V) if needs_bias else None
        by_logprob_N1 = torch.zeros_like(top_N1) if d_logprobs_N is None else d_logprobs_N[:, None] * (scale / temperature)
        by_entropy_N1 = (
            None  # an entropy that only is recorded has a gradient of zeros: its passes over the slices are left out
        )
        if d_entropy_N is not None and bool(d_entropy_N.any()):
            by_entropy_N1 = d_entropy_N[:, None] * (scale / temperature)
        at_target_N1 = by_logprob_N1 * miss_N1
        if by_entropy_N1 is not None:
            at_target_N1 = at_target_N1 - by_entropy_N1 * logprob_N1.exp() * (logprob_N1 + entropy_N1)
        for part in _slices(hidden_ND, weight_VD):
            z_NS = _logits(hidden_ND, weight_VD, bias_V, part, scale, softcap)
            slope_NS = None if softcap is None else 1 - (z_NS / softcap).square_()
            log_p_NS = z_NS.div_(temperature).sub_(top_N1).add_(shift_N1)
            d_NS = _d_scores(log_p_NS, entropy_N1, by_logprob_N1, by_entropy_N1)
            here_N1, inside_N1 = _places(targets_N, part)
            d_NS.scatter_(1, here_N1, torch.where(inside_N1, at_target_N1, d_NS.gather(1, here_N1)))
            d_NS = (d_NS if slope_NS is None else d_NS.mul_(slope_NS)).to(weight_VD.dtype)
            if d_hidden_ND is not None:
                d_hidden_ND += d_NS @ weight_VD[part]
            if d_weight_VD is not None:
                torch.mm(d_NS.t(), hidden_ND, out=d_weight_VD[part])
            elif needs_weight:
                ctx.take(part, d_NS.t() @ hidden_ND)
            if d_bias_V is not None:
                d_bias_V[part] = d_NS.sum(0, dtype=top_N1.dtype)
        d_hidden_ND = None if d_hidden_ND is None else d_hidden_ND.to(hidden_ND.dtype)
        return d_hidden_ND, d_weight_VD, d_bias_V, None, None, None, None, None


def _d_scores(log_p_NS: Tensor, entropy_N1: Tensor, by_logprob_N1: Tensor, by_entropy_N1: Tensor | None) -> Tensor:
    """-p (a + b (log p + entropy)) of all words but the target, in the memory of `log_p_NS`."""
    if by_entropy_N1 is None:
        return log_p_NS.exp_().mul_(-by_logprob_N1)
    factor_NS = (log_p_NS + entropy_N1).mul_(-by_entropy_N1).sub_(by_logprob_N1)
    return log_p_NS.exp_().mul_(factor_NS)


def _logits(
    hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, part: slice, scale: float, softcap: float | None
) -> Tensor:
    """A slice of the logits, the caller's own. Minus infinity (a bias can be) becomes a very negative number: its probability
    is 0 as well, but 0 times it is 0."""
    product_NS = torch.nn.functional.linear(hidden_ND, weight_VD[part], None if bias_V is None else bias_V[part])
    z_NS = _capped(product_NS, scale, softcap)
    return z_NS if bias_V is None else z_NS.clamp_(min=_LOWEST)


def _capped(product_NS: Tensor, scale: float, softcap: float | None) -> Tensor:
    z_NS = product_NS.to(_wide(product_NS.dtype))
    if scale != 1.0:
        z_NS = z_NS * scale
    return z_NS if softcap is None else (z_NS / softcap).tanh() * softcap


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _slices(hidden_ND: Tensor, weight_VD: Tensor) -> Iterator[slice]:
    numbers = SLICE_NUMBERS if hidden_ND.device.type == "cpu" else SLICE_NUMBERS_DEVICE
    width = max(MIN_SLICE, numbers // max(1, len(hidden_ND)))
    return (slice(start, min(start + width, len(weight_VD))) for start in range(0, len(weight_VD), width))


def _places(targets_N: Tensor, part: slice) -> tuple[Tensor, Tensor]:
    """Where in the slice each target stands (N, 1), and whether it stands there at all."""
    place_N1, width = targets_N[:, None] - part.start, part.stop - part.start
    return place_N1.clamp(0, width - 1), (place_N1 >= 0) & (place_N1 < width)
