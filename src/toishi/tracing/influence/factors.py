"""A weight's gradient, kept as its two factors, text by text.

    y = x Wᵀ      dL/dW = (dL/dy)ᵀ x

Decisions:
1. A linear map and an embedding leave x and dL/dy behind, which are far smaller than W. The matrix itself is made later, for
   all texts together and a few rows at a time.
2. Calls are caught where torch makes them (F.linear, F.embedding, addmm) by the weight that they use. So it does not matter
   which module calls, and tied weights are one weight with two uses. Every other use of a weight goes through plain autograd.
3. Texts that run side by side are the first dimension of x and dL/dy, and so come apart again. A call in which they are not is
   refused (`NotApartError`): then every text is run by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode


class NotApartError(Exception):
    """The texts of a pass cannot be told apart in one of its calls."""


@dataclass(frozen=True, slots=True)
class Factors:
    """leftᵀ · right is a gradient, for each of B texts.

    left   (B, T, lines); or ids (B, T) of lines, each of which gets its row of `right`
    right  (B, T, columns)
    """

    left: Tensor
    right: Tensor

    def to(self, dtype: torch.dtype) -> Factors:
        """In another precision; ids stay as they are."""
        return Factors(self.left if self.left.dtype == torch.long else self.left.to(dtype), self.right.to(dtype))

    def write_to(self, made_BLC: Tensor, first: int) -> None:
        """Writes lines `first`, first + 1, ... of each text's gradient over what is there."""
        if self.left.dtype == torch.long:
            self.add_to(made_BLC.zero_(), first)
        else:
            torch.bmm(self.left[:, :, first : first + made_BLC.shape[1]].mT, self.right, out=made_BLC)

    def add_to(self, made_BLC: Tensor, first: int) -> None:
        """Adds them to what is there."""
        count, columns = made_BLC.shape[1:]
        if self.left.dtype == torch.long:
            text, place = ((self.left >= first) & (self.left < first + count)).nonzero(as_tuple=True)
            line = text * count + self.left[text, place] - first
            made_BLC.view(-1, columns).index_add_(0, line, self.right[text, place])
        else:
            made_BLC.baddbmm_(self.left[:, :, first : first + count].mT, self.right)


Leaves = Callable[[Tensor, Factors], None]
Keep = Callable[[Tensor, Tensor], None]
_WIDE, _PIECE = 8192, 1024
_EMBEDDING_OPTIONS = ("padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse")


@dataclass(frozen=True, slots=True)
class Beginning:
    """The `shared` tokens that all texts of a batch (texts, length) begin with. There a causal model sees the same in each: a
    linear map computes them once; gradients differ."""

    texts: int
    length: int
    shared: int

    def linear(self, x: Tensor, weight: Tensor) -> Tensor:
        """x Wᵀ

        >>> x_BTD = torch.tensor([[[1.0], [2.0]], [[1.0], [3.0]]])
        >>> Beginning(texts=2, length=2, shared=1).linear(x_BTD, torch.tensor([[10.0]])).flatten().tolist()
        [10.0, 20.0, 10.0, 30.0]
        """
        if not self.shared or x.dim() != 3 or x.shape[:2] != (self.texts, self.length):
            return F.linear(x, weight)
        begin, rest = F.linear(x[:1, : self.shared], weight), F.linear(x[:, self.shared :], weight)
        return torch.cat([begin.expand(self.texts, -1, -1), rest], 1)


NOTHING_SHARED = Beginning(0, 0, 0)


class SharesBeginning(TorchFunctionMode):
    """Inside, linear maps compute once what all texts begin with. For forward passes alone."""

    def __init__(self, beginning: Beginning) -> None:
        super().__init__()
        self.beginning = beginning

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not F.linear or kwargs:
            return func(*args, **(kwargs or {}))
        y = self.beginning.linear(args[0], args[1])
        return y if len(args) < 3 or args[2] is None else y + args[2]


class _Linear(torch.autograd.Function):
    """y = x Wᵀ + b; backward leaves its factors behind and makes no weight gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, anchor: Tensor, leaves: Keep, beginning: Beginning) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.leaves = leaves
        return beginning.linear(x, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        (gradient,) = gradients
        ctx.leaves(gradient, x)
        return backward_through(gradient, weight) if ctx.needs_input_grad[0] else None, None, None, None, None


class _Embedding(torch.autograd.Function):
    """Rows of a table; backward leaves ids and gradients behind. The padding's row has no gradient, wherever it stands."""

    @staticmethod
    def forward(ctx: Any, ids: Tensor, weight: Tensor, padding: int | None, anchor: Tensor, leaves: Keep) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.leaves, ctx.padding, ctx.rows = leaves, padding, len(weight)
        return F.embedding(ids, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (ids,) = ctx.saved_tensors
        (gradient,) = gradients
        if ctx.padding is not None:
            gradient = gradient.masked_fill((ids == ctx.padding % ctx.rows)[..., None], 0)
        ctx.leaves(ids, gradient)
        return None, None, None, None, None


class CatchFactors(TorchFunctionMode):
    """Inside, each use of a trained weight in a linear map or an embedding leaves its factors with `leaves(weight, factors)`.

    anchor  a number that asks for a gradient and is asked for: autograd runs only what leads to something asked for
    texts   how many texts stand side by side. Vectors are then (texts, 1, size): one for each text
    beginning  what all texts begin with

    Raises NotApartError for a call whose input is not led by the texts.
    """

    def __init__(self, trained: Mapping[int, Tensor], anchor: Tensor, texts: int, leaves: Leaves, beginning: Beginning) -> None:
        super().__init__()
        self.trained, self.anchor, self.texts, self.leaves, self.beginning = trained, anchor, texts, leaves, beginning

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.is_grad_enabled():
            if func is F.linear:
                return self._linear(*args, **kwargs)
            if func is F.embedding and self._is(args, 1):
                options = dict(zip(_EMBEDDING_OPTIONS, args[2:], strict=False)) | kwargs
                if options.get("max_norm") is None and not options.get("scale_grad_by_freq"):
                    return self._embedding(args[0], args[1], options.get("padding_idx"))
            if func is torch.addmm and self._is(args, 2) and not kwargs:
                keep = self._keep(args[2])
                x = args[1].view(self.texts, -1, args[1].shape[-1])
                y = self._caught(x, args[2].T, lambda left, right: keep(right, left)) + args[0]
                return y.view(-1, y.shape[-1])
            if func in (F.layer_norm, F.rms_norm) and self.texts > 1:
                return _norm(func, *args, **kwargs)
        return func(*args, **kwargs)

    def _linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        trained = id(weight) in self.trained
        if trained:
            y = self._caught(self._led(x, 3), weight, self._keep(weight))
        elif not weight.requires_grad:
            y = self._caught(x, weight, _forget)
        else:
            y = F.linear(x, weight)
        return y if bias is None else y + bias

    def _embedding(self, ids: Tensor, weight: Tensor, padding: int | None) -> Tensor:
        if self.texts > 1 and len(ids) == 1:  # positions that are the same for all texts
            ids = ids.expand(self.texts, -1)
        given = (self._led(ids, 2), weight.detach(), padding, self.anchor, self._keep(weight))
        return _Embedding.apply(*given)  # type: ignore[no-untyped-call, no-any-return]

    def _caught(self, x: Tensor, weight: Tensor, keep: Keep) -> Tensor:
        return _Linear.apply(x, weight.detach(), self.anchor, keep, self.beginning)  # type: ignore[no-untyped-call, no-any-return]

    def _is(self, args: Any, place: int) -> bool:
        return len(args) > place and id(args[place]) in self.trained

    def _led(self, x: Tensor, dims: int) -> Tensor:
        if self.texts > 1 and (x.dim() < dims or len(x) != self.texts):
            raise NotApartError(f"an input of shape {tuple(x.shape)} for {self.texts} texts")
        return x

    def _keep(self, weight: Tensor) -> Keep:
        def split(value: Tensor) -> Tensor:
            return value.reshape(self.texts, -1, value.shape[-1])

        def keep(left: Tensor, right: Tensor) -> None:
            lines = left.reshape(self.texts, -1) if left.dtype == torch.long else split(left)
            self.leaves(weight, Factors(lines, split(right)))

        return keep


def _norm(
    func: Any, x: Tensor, shape: Any, weight: Tensor | None = None, bias: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """A norm whose vectors differ from text to text, which torch's own does not take."""
    y = func(x, shape, eps=eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias  # type: ignore[no-any-return]


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


def _forget(left: Tensor, right: Tensor) -> None:
    """A weight that is not trained leaves nothing."""
