"""The elementwise middle of a layer as single steps of the gradient: RMS norm, rotary embedding, gated activation.

Decisions:
1. Each keeps its inputs only. What the plain modules keep besides (an fp32 copy of a norm's input, its
   normed input, silu(gate)) is computed again: on a CPU fresh pages of memory cost about as much as that arithmetic.
2. Statistics and sums are fp32 for 16-bit inputs, as in the plain modules, and rounding happens where they round.
3. Outputs that layers behind them would keep are offered to be made again (`remaking`), by the very same operations.
4. Without a gradient the same few operations run directly: for the rows of a decode step calls cost more than numbers.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import silu

from toishi.policy.remaking import offer

ROWS_AT_ONCE = 512
"""Rows of a norm's backward pass that are widened to fp32 at a time."""


def rms_norm(x: Tensor, weight_D: Tensor, eps: float, *, offset: float = 0.0, round_last: bool = False) -> Tensor:
    """y = x / sqrt(mean(x²) + eps) · (offset + weight), over the last dimension (Zhang and Sennrich 2019, arXiv:1910.07467).

    x           (..., D); statistics in fp32, or float64 for float64
    offset      1 where a weight is kept as its distance from 1 (Gemma)
    round_last  the product with the weight is taken before the result is rounded to x's precision, not after

    >>> rms_norm(torch.tensor([[3.0, 4.0]]), torch.tensor([1.0, 2.0]), 0.0).mul(12.5**0.5).round(decimals=4).tolist()
    [[3.0, 8.0]]
    """
    if torch.is_grad_enabled() and (x.requires_grad or weight_D.requires_grad):
        return _Norm.apply(x, weight_D, eps, offset, round_last)  # type: ignore[no-any-return, no-untyped-call]
    return _scaled(x, weight_D, _mean_square(x), eps, offset, round_last)


def gated_silu(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) · up, elementwise, with silu(z) = z / (1 + e⁻ᶻ) (Shazeer 2020, arXiv:2002.05202).

    >>> gated_silu(torch.tensor([0.0, 50.0]), torch.tensor([3.0, 2.0])).tolist()
    [0.0, 100.0]
    """
    if torch.is_grad_enabled() and (gate.requires_grad or up.requires_grad):
        return _GatedSilu.apply(gate, up)  # type: ignore[no-any-return, no-untyped-call]
    return _gated(gate, up)


def _gated(gate: Tensor, up: Tensor) -> Tensor:
    return silu(gate).mul_(up)


def rotate(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1) -> tuple[Tensor, Tensor]:
    """q and k with each pair (z_i, z_{i + D/2}) of their last dimension turned by its angle (Su et al. 2021, arXiv:2104.09864).

    q, k      (..., D), D even
    cos, sin  the angles' cosine and sine, (..., D), which get a dimension at `unsqueeze_dim` to fit q and k

    >>> q = torch.tensor([[1.0, 0.0]])
    >>> rotate(q, 2 * q, torch.tensor([0.0, 0.0]), torch.tensor([1.0, 1.0]), unsqueeze_dim=0)
    (tensor([[0., 1.]]), tensor([[0., 2.]]))
    """
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    half = sin.shape[-1] // 2
    signed = torch.cat((-sin[..., :half], sin[..., half:]), -1)
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad):
        return _Rotate.apply(q, k, cos, signed)  # type: ignore[no-any-return, no-untyped-call]
    return _turned(q, cos, signed), _turned(k, cos, signed)


def _mean_square(x: Tensor) -> Tensor:
    """Of each row, [rows]."""
    x_RD = x.reshape(-1, x.shape[-1])
    square_R: Tensor = torch.linalg.vector_norm(x_RD, dim=-1, dtype=_wide(x.dtype)).square_().div_(x.shape[-1])
    return square_R


def _scaled(x: Tensor, weight_D: Tensor, square_R: Tensor, eps: float, offset: float, round_last: bool) -> Tensor:
    """The normed and weighted x, contiguous."""
    x_RD = x.reshape(-1, x.shape[-1])
    if round_last:
        y_RD = x_RD.to(square_R.dtype, copy=True).mul_((square_R + eps).rsqrt_()[:, None])
        y_RD = y_RD.mul_(weight_D.to(square_R.dtype) + offset).to(x.dtype)
    else:
        # One pass with rounding at its end: a batch norm whose channels are the rows, with given statistics.
        nothing_R = torch.zeros_like(square_R)
        y_RD = torch.batch_norm(x_RD[None], None, None, nothing_R, square_R, False, 0.0, eps, False)[0]
        y_RD.mul_(weight_D if offset == 0 else weight_D + offset)
    return y_RD.view(x.shape)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


class _Norm(torch.autograd.Function):
    """With n = x · r, r = 1 / sqrt(mean(x²) + eps) and w the whole weight:

    dw = Σ_rows g · n,   dx = r · (g · w - n · mean(g · w · n))
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight_D: Tensor, eps: float, offset: float, round_last: bool) -> Tensor:
        square_R = _mean_square(x)
        y = _scaled(x, weight_D, square_R, eps, offset, round_last)
        offer(y, partial(_scaled, eps=eps, offset=offset, round_last=round_last), x, weight_D, square_R)
        ctx.save_for_backward(x, weight_D, square_R)
        ctx.eps, ctx.offset = eps, offset
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None, None, None]:
        x, weight_D, square_R = ctx.saved_tensors
        rstd_R, size = (square_R + ctx.eps).rsqrt_(), x.shape[-1]
        x_RD, grad_RD = x.reshape(-1, size), grad.reshape(-1, size)
        whole_D = weight_D.to(rstd_R.dtype) + ctx.offset
        dx_RD = torch.empty_like(x_RD)
        dw_D = torch.zeros_like(whole_D) if ctx.needs_input_grad[1] else None
        for start in range(0, len(x_RD), ROWS_AT_ONCE):
            rows = slice(start, start + ROWS_AT_ONCE)
            r_R1 = rstd_R[rows, None]
            n_RD = x_RD[rows].to(r_R1.dtype, copy=True).mul_(r_R1)
            g_RD = grad_RD[rows].to(r_R1.dtype, copy=True)
            product_RD = g_RD * n_RD
            if dw_D is not None:
                dw_D += product_RD.sum(0)
            mean_R1 = torch.mv(product_RD, whole_D).div_(-size)[:, None]
            dx_RD[rows] = g_RD.mul_(whole_D).addcmul_(n_RD, mean_R1).mul_(r_R1)
        return dx_RD.view(x.shape), None if dw_D is None else dw_D.to(weight_D.dtype), None, None, None


class _GatedSilu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        ctx.save_for_backward(gate, up)
        output = _gated(gate, up)
        offer(output, _gated, gate, up)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = ctx.saved_tensors
        d_gate = grad * up
        torch.ops.aten.silu_backward.grad_input(d_gate, gate, grad_input=d_gate)
        return d_gate, silu(gate).mul_(grad)


def _turned(z: Tensor, cos: Tensor, signed_sin: Tensor) -> Tensor:
    return torch.mul(z, cos).addcmul_(torch.roll(z, z.shape[-1] // 2, -1), signed_sin)


class _Rotate(torch.autograd.Function):
    """A turn's transpose is a turn too: its signed sine with the halves exchanged."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, cos: Tensor, signed_sin: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(cos, signed_sin)
        return _turned(q, cos, signed_sin), _turned(k, cos, signed_sin)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_q: Tensor, grad_k: Tensor) -> tuple[Tensor, Tensor, None, None]:
        cos, signed_sin = ctx.saved_tensors
        back = torch.roll(signed_sin, signed_sin.shape[-1] // 2, -1)
        return _turned(grad_q, cos, back), _turned(grad_k, cos, back), None, None
