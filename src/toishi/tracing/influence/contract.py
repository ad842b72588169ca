"""One weight at a time: gradients of all rows are made, multiplied with one another and with the step, sampled, and dropped.

Decisions:
1. A few rows of the weight at a time, so that all texts' gradients of that piece stay in the processor's cache. Products are
   added up in float64 over pieces: one long float32 sum would come out percents too low.
2. The step's own metric and the optimizer's memory are read off its state after the step, which the update left behind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
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

    metric     change of the weight for each unit of clipped gradient; a number where it is the same for all elements
    memory_n   change by what it remembered of earlier steps; None: nothing
    decay_n    change by weight decay; None: nothing
    """

    metric: Tensor | float
    memory_n: Tensor | None
    decay_n: Tensor | None

    def intended(self, gradient_n: Tensor) -> Tensor:
        """The whole step."""
        step_n = gradient_n * -self.metric
        for part_n in (self.memory_n, self.decay_n):
            step_n = step_n if part_n is None else step_n.add_(part_n)
        return step_n


def optimizer_piece(
    gradient_n: Tensor, weight_n: Tensor, state: Mapping[str, Any], options: Mapping[str, Any]
) -> OptimizerPiece:
    """gradient_n  of the loss, clipped; weight_n before the step; state after it."""
    lr, decay = float(options["lr"]), float(options["weight_decay"])
    decay_n = weight_n * (-lr * decay) if decay else None
    if "exp_avg" in state:
        (beta1, beta2), count = options["betas"], float(state["step"])
        divisor_n = (state["exp_avg_sq"] / (1 - beta2**count)).sqrt_().add_(options["eps"])
        per_mean_n = torch.reciprocal(divisor_n, out=divisor_n).mul_(lr / (1 - beta1**count))
        memory_n = None if count <= 1 else ((1 - beta1) * gradient_n).sub_(state["exp_avg"]).mul_(per_mean_n)
        return OptimizerPiece(per_mean_n.mul_(1 - beta1), memory_n, decay_n)
    memory_n = None
    if options["momentum"] and state.get("momentum_buffer") is not None:
        memory_n = (gradient_n + decay * weight_n - state["momentum_buffer"]) * lr
    return OptimizerPiece(lr, memory_n, decay_n)


def means_before(gradient_I: Tensor, state: Mapping[str, Any], options: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
    """AdamW's running means before the step on some elements, the first in the direction of ascent; 0 before the first
    step, and for other optimizers."""
    zero_I = torch.zeros_like(gradient_I)
    if "exp_avg" not in state or float(state["step"]) <= 1:
        return zero_I, zero_I
    beta1, beta2 = options["betas"]
    mean_I = ((1 - beta1) * gradient_I - state["exp_avg"]) / beta1 if beta1 else zero_I
    square_I = ((state["exp_avg_sq"] - (1 - beta2) * gradient_I**2) / beta2).clamp_(min=0) if beta2 else zero_I
    return mean_I, square_I


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

    def add_lengths(self, change_n: Tensor, intended_n: Tensor, whole_n: Tensor, off_n: Tensor) -> None:
        """Adds squared lengths: of the real and the intended step, the gradient, and what the texts' gradients miss of it."""
        some = torch.stack([change_n, intended_n, whole_n, off_n])
        found = products(some, some)
        self.step_real += float(found[0, 0])
        self.step_common += float(found[0, 1])
        self.step_intended += float(found[1, 1])
        self.whole += float(found[2, 2])
        self.off += float(found[3, 3])


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
        return self._each(lambda value: value.detach().reshape(-1, self.columns)[first : first + count].reshape(-1))

    def at(self, positions: Tensor) -> Weight:
        """Some elements of a flat one."""
        return self._each(lambda value: value[positions])

    def _each(self, cut: Callable[[Tensor], Tensor]) -> Weight:
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


@dataclass(frozen=True, kw_only=True)
class Step:
    """What all weights share.

    coefficients_R  what each row's gradient is multiplied by in the direction of ascent, before clipping
    """

    coefficients_R: Tensor
    options: Mapping[str, Any]
    clip_factor: float
    coordinates: Coordinates

    @cached_property
    def pushing(self) -> list[int]:
        """Rows that pushed: what the others' gradients did to a text is 0."""
        return [row for row, coefficient in enumerate(self.coefficients_R.tolist()) if coefficient]


@torch.no_grad()
def contract(weight: Weight, uses: Uses, step: Step, sums: Sums) -> None:
    """Adds a weight's part to the sums."""
    columns, num_rows, dtype = weight.columns, len(step.coefficients_R), weight.before.dtype
    num_lines = weight.before.numel() // columns
    at_once = max(1, _AT_ONCE // max(1, num_rows * columns))
    factors = [(row, found.to(dtype)) for row, found in uses.factors]
    whole = [(row, found.reshape(len(found), -1, columns).to(dtype)) for row, found in uses.whole]
    effect_R = torch.zeros(num_rows, dtype=torch.float64)
    for first in range(0, num_lines, at_once):
        count = min(at_once, num_lines - first)
        # Room for the lines of every row's gradient, for as many rows again, and three more.
        room = torch.empty(2 * num_rows + _BESIDE, count, columns, dtype=dtype, device=weight.before.device)
        made_RLC = room[:num_rows]
        blank = set(range(num_rows))
        for row, some in factors:
            rows = set(range(row, row + len(some.right)))
            lines_BLC = made_RLC[row : row + len(some.right)]
            if rows <= blank:
                some.write_to(lines_BLC, first)
            else:
                for row_of in rows & blank:
                    made_RLC[row_of].zero_()
                some.add_to(lines_BLC, first)
            blank -= rows
        for row in blank:
            made_RLC[row].zero_()
        for row, all_lines in whole:
            made_RLC[row : row + len(all_lines)] += all_lines[:, first : first + count]
        effect_R += _add(sums, room.view(len(room), -1), weight.lines(first, count), first * columns, step)
    sums.effects[weight.name] = effect_R


def _add(sums: Sums, room: Tensor, weight: Weight, first: int, step: Step) -> Tensor:
    """Adds some elements' part to the sums; what their real change did to each row's text. All products are made at once."""
    num_rows = len(step.coefficients_R)
    rows_Rn, change_n, gradient_n = room[:num_rows], weight.change, weight.gradient
    ascent_n = step.coefficients_R.to(rows_Rn) @ rows_Rn
    places, positions = step.coordinates.inside(weight.name, first, len(change_n))
    sums.gradients_RI[:, places] = rows_Rn[:, positions].to(sums.gradients_RI)
    sums.changed += int(torch.count_nonzero(change_n))
    if gradient_n is None:
        sums.add_lengths(change_n, torch.zeros_like(change_n), torch.zeros_like(change_n), ascent_n)
        room[num_rows] = change_n
        found = products(room[: num_rows + 1], rows_Rn)
        sums.products_RR += found[:num_rows]
        return found[num_rows]
    did = optimizer_piece(gradient_n, weight.before, weight.state, step.options)
    whole_n = gradient_n / step.clip_factor
    sums.add_lengths(change_n, did.intended(gradient_n), whole_n, whole_n + ascent_n)
    chosen = weight.at(positions)
    mean_I, square_I = means_before(gradient_n[positions], chosen.state, step.options)
    sums.mean_I[places], sums.square_I[places] = mean_I.to(sums.mean_I), square_I.to(sums.square_I)
    beside = [part_n for part_n in (change_n, did.memory_n, did.decay_n) if part_n is not None]
    last = num_rows + len(beside)
    torch.stack(beside, out=room[num_rows:last])
    if isinstance(did.metric, Tensor):
        for number, row in enumerate(step.pushing):
            torch.mul(rows_Rn[row], did.metric, out=room[last + number])
        found = products(room[: last + len(step.pushing)], rows_Rn)
        sums.metric_RR[:, step.pushing] += found[last:].T
    else:
        found = products(room[:last], rows_Rn)
        sums.metric_RR[:, step.pushing] += did.metric * found[:num_rows, step.pushing]
    sums.products_RR += found[:num_rows]
    if did.memory_n is not None:
        sums.memory_R += found[num_rows + 1]
    if did.decay_n is not None:
        sums.decay_R += found[last - 1]
    return found[num_rows]


def products(one_Rn: Tensor, other_Sn: Tensor) -> Tensor:
    """one · otherᵀ in float64 over pieces, [R, S], on the processor.

    >>> products(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0], [1.0, 0.0]])).tolist()
    [[11.0, 1.0]]
    """
    pairs = zip(torch.split(one_Rn, _PIECE, dim=1), torch.split(other_Sn, _PIECE, dim=1), strict=True)
    return torch.stack([left @ right.T for left, right in pairs]).double().sum(0).cpu()
