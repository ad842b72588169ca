"""One weight at a time: gradients of all rows are made, multiplied with one another and with the step, sampled, and dropped.

Decisions:
1. A few rows of the weight at a time, so that all texts' gradients of that piece stay in the processor's cache. Products are
   added up in float64 over pieces: one long float32 sum would come out percents too low.
2. The step's own metric and the optimizer's memory are read off its state after the step, which the update left behind.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from toishi.tracing.influence.coordinates import Coordinates
from toishi.tracing.influence.layers import Uses

_PIECE = 1 << 16
_AT_ONCE = 1 << 20
_BESIDE = 3


@dataclass(frozen=True, slots=True)
class OptimizerPiece:
    """What the optimizer did on some elements of a weight, in the direction of ascent.

    metric_n   change of the weight for each unit of clipped gradient
    memory_n   change by what it remembered of earlier steps
    decay_n    change by weight decay
    mean_n, square_n  its running means before the step
    """

    metric_n: Tensor
    memory_n: Tensor
    decay_n: Tensor
    mean_n: Tensor
    square_n: Tensor


def optimizer_piece(
    gradient_n: Tensor, weight_n: Tensor, state: Mapping[str, Any], options: Mapping[str, Any]
) -> OptimizerPiece:
    """gradient_n  of the loss, clipped; weight_n before the step; state after it."""
    lr, decay = float(options["lr"]), float(options["weight_decay"])
    decay_n, zero_n = weight_n * (-lr * decay), torch.zeros_like(weight_n)
    if "exp_avg" in state:
        (beta1, beta2), count = options["betas"], float(state["step"])
        mean_n, square_n = state["exp_avg"], state["exp_avg_sq"]
        per_mean_n = (lr / (1 - beta1**count)) / (square_n / (1 - beta2**count)).sqrt_().add_(options["eps"])
        earlier_n = (1 - beta1) * gradient_n - mean_n
        fresh = count <= 1
        return OptimizerPiece(
            metric_n=(1 - beta1) * per_mean_n,
            memory_n=zero_n if fresh else earlier_n * per_mean_n,
            decay_n=decay_n,
            mean_n=zero_n if fresh or beta1 == 0 else earlier_n / beta1,
            square_n=zero_n if fresh or beta2 == 0 else ((square_n - (1 - beta2) * gradient_n**2) / beta2).clamp_(min=0),
        )
    memory_n = zero_n
    if options["momentum"] and state.get("momentum_buffer") is not None:
        memory_n = (gradient_n + decay * weight_n - state["momentum_buffer"]) * lr
    return OptimizerPiece(torch.full_like(weight_n, lr), memory_n, decay_n, zero_n, zero_n)


@dataclass
class Sums:
    """All that is added up over the weights. R rows, I sampled coordinates.

    effects     weight -> change of each row's text by its real change (R,)
    off, whole  squared length of (sum of the texts' gradients - the update's gradient), and of the latter
    """

    products_RR: Tensor
    metric_RR: Tensor
    memory_R: Tensor
    decay_R: Tensor
    gradients_RI: Tensor
    mean_I: Tensor
    square_I: Tensor
    effects: dict[str, Tensor]
    off: float = 0.0
    whole: float = 0.0
    step_intended: float = 0.0
    step_common: float = 0.0
    step_real: float = 0.0
    changed: int = 0

    @classmethod
    def zeros(cls, num_rows: int, num_sampled: int, dtype: torch.dtype) -> Sums:
        def double(*shape: int) -> Tensor:
            return torch.zeros(*shape, dtype=torch.float64)

        square = (num_rows, num_rows)
        return cls(
            products_RR=double(*square),
            metric_RR=double(*square),
            memory_R=double(num_rows),
            decay_R=double(num_rows),
            gradients_RI=torch.zeros(num_rows, num_sampled, dtype=dtype),
            mean_I=torch.zeros(num_sampled, dtype=dtype),
            square_I=torch.zeros(num_sampled, dtype=dtype),
            effects={},
        )


@dataclass(frozen=True)
class Weight:
    """A trained weight around the step: its master before and after, and the precision in which the model sees it.

    gradient  of the update's loss, clipped; None when the optimizer left it alone
    """

    name: str
    before: Tensor
    after: Tensor
    gradient: Tensor | None
    state: Mapping[str, Any]
    compute_dtype: torch.dtype

    @property
    def columns(self) -> int:
        return self.before.shape[-1] if self.before.dim() > 1 else max(1, self.before.numel())

    def lines(self, first: int, count: int) -> Weight:
        """Some lines of it, flat, the optimizer's state as well."""

        def cut(value: Tensor) -> Tensor:
            return value.detach().reshape(-1, self.columns)[first : first + count].reshape(-1)

        state = {
            key: cut(value) if isinstance(value, Tensor) and value.shape == self.before.shape else value
            for key, value in self.state.items()
        }
        gradient = None if self.gradient is None else cut(self.gradient)
        return Weight(self.name, cut(self.before), cut(self.after), gradient, state, self.compute_dtype)

    @property
    def change(self) -> Tensor:
        """Real change, as the model sees it."""
        dtype = self.before.dtype
        return self.after.to(self.compute_dtype).to(dtype) - self.before.to(self.compute_dtype).to(dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What all weights share.

    rows            pass -> the row that its gradient belongs to
    coefficients_R  what each row's gradient is multiplied by in the direction of ascent, before clipping
    """

    rows: Sequence[int]
    coefficients_R: Tensor
    options: Mapping[str, Any]
    clip_factor: float
    coordinates: Coordinates


@torch.no_grad()
def contract(weight: Weight, uses: Uses, step: Step, sums: Sums) -> None:
    """Adds a weight's part to the sums."""
    columns, num_rows = weight.columns, len(step.coefficients_R)
    num_lines = weight.before.numel() // columns
    at_once = max(1, _AT_ONCE // max(1, num_rows * columns))
    effect_R = torch.zeros(num_rows, dtype=torch.float64)
    for first in range(0, num_lines, at_once):
        count = min(at_once, num_lines - first)
        room = _gradients(uses, step.rows, num_rows, first, count, weight)
        effect_R += _add(sums, room, weight.lines(first, count), first * columns, step)
    sums.effects[weight.name] = effect_R


def _gradients(uses: Uses, rows: Sequence[int], num_rows: int, first: int, count: int, weight: Weight) -> Tensor:
    """Lines first ... first + count - 1 of every row's gradient, flat, in the masters' precision, above room for as many rows
    again and three more: (2R + 3, count · columns)."""
    room = torch.empty(2 * num_rows + _BESIDE, count, weight.columns, dtype=weight.before.dtype, device=weight.before.device)
    made = room[:num_rows].zero_()
    for number, factors in uses.factors:
        factors.add_to(made[rows[number]], first)
    for number, whole in uses.whole:
        made[rows[number]] += whole.reshape(-1, weight.columns)[first : first + count].to(made.dtype)
    return room.view(len(room), -1)


def _add(sums: Sums, room: Tensor, weight: Weight, first: int, step: Step) -> Tensor:
    """Adds some elements' part to the sums; what their real change did to each row's text. All products are made at once."""
    num_rows = len(step.coefficients_R)
    rows_Rn, change_n, gradient_n = room[:num_rows], weight.change, weight.gradient
    ascent_n = step.coefficients_R.to(rows_Rn) @ rows_Rn
    places, positions = step.coordinates.inside(weight.name, first, len(change_n))
    sums.gradients_RI[:, places] = rows_Rn[:, positions].to(sums.gradients_RI)
    sums.step_real += _dot(change_n, change_n)
    sums.changed += int(torch.count_nonzero(change_n))
    if gradient_n is None:
        sums.off += _dot(ascent_n, ascent_n)
        found = products(torch.cat([rows_Rn, change_n[None]]), rows_Rn)
        sums.products_RR += found[:num_rows]
        return found[num_rows]
    did = optimizer_piece(gradient_n, weight.before, weight.state, step.options)
    intended_n = did.memory_n + did.decay_n - did.metric_n * gradient_n
    sums.step_intended += _dot(intended_n, intended_n)
    sums.step_common += _dot(intended_n, change_n)
    off_n = gradient_n / step.clip_factor
    sums.whole += _dot(off_n, off_n)
    off_n += ascent_n
    sums.off += _dot(off_n, off_n)
    sums.mean_I[places], sums.square_I[places] = did.mean_n[positions].to(sums.mean_I), did.square_n[positions].to(sums.mean_I)
    torch.mul(rows_Rn, did.metric_n, out=room[num_rows : 2 * num_rows])
    torch.stack([change_n, did.memory_n, did.decay_n], out=room[2 * num_rows :])
    found = products(room, rows_Rn)
    sums.products_RR += found[:num_rows]
    sums.metric_RR += found[num_rows : 2 * num_rows]
    sums.memory_R += found[2 * num_rows + 1]
    sums.decay_R += found[2 * num_rows + 2]
    return found[2 * num_rows]


def products(one_Rn: Tensor, other_Sn: Tensor) -> Tensor:
    """one · otherᵀ in float64 over pieces, [R, S], on the processor.

    >>> products(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0], [1.0, 0.0]])).tolist()
    [[11.0, 1.0]]
    """
    pairs = zip(torch.split(one_Rn, _PIECE, dim=1), torch.split(other_Sn, _PIECE, dim=1), strict=True)
    return torch.stack([left @ right.T for left, right in pairs]).double().sum(0).cpu()


def _dot(one_n: Tensor, other_n: Tensor) -> float:
    pairs = zip(torch.split(one_n, _PIECE), torch.split(other_n, _PIECE), strict=True)
    return math.fsum(float(torch.dot(a, b)) for a, b in pairs)
