"""A trained weight around the optimizer's step, and what the optimizer did to some of its elements.

The step's own metric and the optimizer's memory are read off its state after the step, which the update left behind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


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
