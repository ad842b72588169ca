"""A weight's gradient, kept as its two factors.

    y = x Wᵀ      dL/dW = (dL/dy)ᵀ x

Decisions:
1. A linear map and an embedding leave x and dL/dy behind, which are far smaller than W. The matrix itself is made later, for
   all texts together and a few rows at a time.
2. Calls are caught where torch makes them (F.linear, F.embedding, addmm) by the weight that they use. So it does not matter
   which module calls, and tied weights are one weight with two uses. Every other use of a weight goes through plain autograd.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode


@dataclass(frozen=True, slots=True)
class Factors:
    """leftᵀ · right is a gradient. `left` (T, rows) may be ids (T,) of rows instead, each of which gets its row of `right`."""

    left: Tensor
    right: Tensor

    def add_to(self, rows: Tensor, first: int) -> None:
        """Adds rows `first`, first + 1, ... of the gradient to `rows` (n, columns)."""
        right = self.right.to(rows.dtype)
        if self.left.dtype == torch.long:
            inside = (self.left >= first) & (self.left < first + len(rows))
            rows.index_add_(0, self.left[inside] - first, right[inside])
        else:
            rows.addmm_(self.left[:, first : first + len(rows)].T.to(rows.dtype), right)


Leaves = Callable[[Tensor, Factors], None]
_WIDE, _PIECE = 8192, 1024


class _Linear(torch.autograd.Function):
    """y = x Wᵀ + b; backward leaves its factors behind and makes no weight gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, anchor: Tensor, leaves: Callable[[Factors], None]) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.leaves = leaves
        return F.linear(x, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        (gradient,) = gradients
        ctx.leaves(Factors(gradient.reshape(-1, gradient.shape[-1]), x.reshape(-1, x.shape[-1])))
        return backward_through(gradient, weight) if ctx.needs_input_grad[0] else None, None, None, None


class _Embedding(torch.autograd.Function):
    """Rows of a table; backward leaves ids and gradients behind."""

    @staticmethod
    def forward(ctx: Any, ids: Tensor, weight: Tensor, anchor: Tensor, leaves: Callable[[Factors], None]) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.leaves = leaves
        return F.embedding(ids, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (ids,) = ctx.saved_tensors
        (gradient,) = gradients
        ctx.leaves(Factors(ids.reshape(-1), gradient.reshape(-1, gradient.shape[-1])))
        return None, None, None, None


class CatchFactors(TorchFunctionMode):
    """Inside, each use of a trained weight in a linear map or an embedding leaves its factors with `leaves(weight, factors)`.

    anchor  a number that asks for a gradient and is asked for: autograd runs only what leads to something asked for
    """

    def __init__(self, trained: Mapping[int, Tensor], anchor: Tensor, leaves: Leaves) -> None:
        super().__init__()
        self.trained, self.anchor, self.leaves = trained, anchor, leaves

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.is_grad_enabled():
            trained = self._is(args, 1)
            if func is F.linear and (trained or _is_wide(args)):
                bias = args[2] if len(args) > 2 else kwargs.get("bias")
                y = self._linear(args[0], args[1], self._keep(args[1]) if trained else _forget)
                return y if bias is None else y + bias
            if func is F.embedding and trained and not _is_special(args, kwargs):
                return _Embedding.apply(args[0], args[1].detach(), self.anchor, self._keep(args[1]))  # type: ignore[no-untyped-call]
            if func is torch.addmm and self._is(args, 2) and not kwargs:
                keep = self._keep(args[2])
                return args[0] + self._linear(args[1], args[2].T, lambda found: keep(Factors(found.right, found.left)))
        return func(*args, **kwargs)

    def _linear(self, x: Tensor, weight: Tensor, keep: Callable[[Factors], None]) -> Tensor:
        return _Linear.apply(x, weight.detach(), self.anchor, keep)  # type: ignore[no-untyped-call, no-any-return]

    def _is(self, args: Any, place: int) -> bool:
        return len(args) > place and id(args[place]) in self.trained

    def _keep(self, weight: Tensor) -> Callable[[Factors], None]:
        return lambda factors: self.leaves(weight, factors)


def backward_through(gradient: Tensor, weight: Tensor) -> Tensor:
    """(dL/dy) W. Over a vocabulary the sum is made in pieces that are added in float64: what it adds up nearly cancels, and one
    float32 sum over few positions was off in the fourth digit.

    >>> backward_through(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0], [10.0]])).tolist()
    [[21.0]]
    """
    if gradient.shape[-1] <= _WIDE or weight.dtype == torch.float64:
        return gradient @ weight
    flat = gradient.reshape(-1, gradient.shape[-1])
    pieces = zip(torch.split(flat, _PIECE, dim=1), torch.split(weight, _PIECE), strict=True)
    total = torch.zeros(len(flat), weight.shape[1], dtype=torch.float64, device=weight.device)
    for part, rows in pieces:
        total += part @ rows
    return total.to(gradient.dtype).reshape(*gradient.shape[:-1], -1)


def _is_wide(args: Any) -> bool:
    return len(args) > 1 and isinstance(args[1], Tensor) and args[1].shape[0] > _WIDE


def _forget(factors: Factors) -> None:
    """A weight that is not trained leaves nothing."""


def _is_special(args: Any, kwargs: Any) -> bool:
    """Rescaled or frequency-weighted embeddings go through autograd; a padding row's missing gradient does as well."""
    options = (
        dict(zip(("padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse"), args[2:], strict=False)) | kwargs
    )
    padding = options.get("padding_idx")
    used = padding is not None and bool((args[0] == padding).any())
    return used or options.get("max_norm") is not None or bool(options.get("scale_grad_by_freq"))
