"""Each weight matrix from both sides of an optimizer step: gradient, clipping, the optimizer's step, decay, real change.

Decisions:
1. What the weights changed by is measured by subtraction. What they should have changed by is the optimizer's own formula,
   from its state after the step; where an element should have moved and did not, the step was lost in rounding.
2. Everything is done block by block: a block stays in the processor's cache, and one float32 sum over an embedding matrix
   would come out percents too low. Smaller blocks cost more in calls than they save in the cache.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from toishi.ops.norms import cosine, norm
from toishi.policy.policy import Policy
from toishi.record.trace import MatrixChange, UpdateTotals

_BLOCK = 1 << 18


@dataclass(frozen=True, slots=True)
class _Before:
    """A matrix as it was: its value, and its gradient's norm after clipping."""

    weight: Tensor
    clipped_norm: float


class MatrixObserver:
    """Watches the updates of a step (`update.Observer`).

    first     the masters before the step's first update; None when no update moved anything
    matrices  a row for each matrix and update
    """

    def __init__(self, policy: Policy, optimizer: torch.optim.Optimizer) -> None:
        self.policy, self.optimizer = policy, optimizer
        self.first: dict[str, Tensor] | None = None
        self.matrices: list[MatrixChange] = []
        self.totals: list[UpdateTotals] = []
        self._before: dict[str, _Before] = {}
        self._clip_factor = 1.0

    @torch.no_grad()
    def before(self, index: int, clip_factor: float) -> None:
        """Copies the masters and measures their gradients."""
        self._clip_factor = clip_factor
        self._before = {
            name: _Before(master.detach().clone(), 0.0 if master.grad is None else norm(master.grad))
            for name, master in self.policy.masters.items()
        }
        if self.first is None:
            self.first = {name: before.weight for name, before in self._before.items()}

    @torch.no_grad()
    def after(self, index: int) -> None:
        """Compares with the copy."""
        options = self.optimizer.param_groups[0]
        rows = [self._row(index, name, before, options) for name, before in self._before.items()]
        sizes = [before.weight.numel() for before in self._before.values()]
        self.matrices += rows
        self.totals.append(_totals(index, rows, sizes, self._clip_factor, type(self.optimizer).__name__.lower(), options))
        self._before = {}

    def _row(self, index: int, name: str, before: _Before, options: dict[str, Any]) -> MatrixChange:
        master = self.policy.masters[name]
        decay = options["lr"] * options["weight_decay"] if master.grad is not None else 0.0
        sums = _Sums()
        compute_dtype = self.policy.compute_dtype if self.policy.has_separate_masters else None
        for block in _blocks(master, before.weight, self.optimizer.state[master]):
            sums.add(block, options, decay, compute_dtype)
        weight_norm, step_norm, change_norm = (math.sqrt(total) for total in (sums.weight, sums.step, sums.change))
        size = max(1, master.numel())
        return MatrixChange(
            update=index,
            name=name,
            shape=tuple(master.shape),
            weight_norm=weight_norm,
            gradient_norm=before.clipped_norm / self._clip_factor,
            clipped_norm=before.clipped_norm,
            step_norm=step_norm,
            step_cosine=cosine(sums.product, step_norm, before.clipped_norm),
            decay_norm=decay * weight_norm,
            change_norm=change_norm,
            relative_change=change_norm / weight_norm if weight_norm > 0 else None,
            changed_share=sums.moved / size,
            changed_share_compute=sums.moved_in_compute / size,
            lost_share=sums.lost / size,
        )


@dataclass(frozen=True, slots=True)
class _Block:
    """A part of a matrix that fits into the processor's cache, flat: after, before, gradient, and the optimizer's state."""

    after_n: Tensor
    before_n: Tensor
    gradient_n: Tensor | None
    state: dict[str, Any]


@dataclass(slots=True)
class _Sums:
    """Squared norms, the product of step and gradient, and counts of elements, added up over the blocks of a matrix."""

    weight: float = 0.0
    step: float = 0.0
    change: float = 0.0
    product: float = 0.0
    moved: int = 0
    moved_in_compute: int = 0
    lost: int = 0

    def add(self, block: _Block, options: dict[str, Any], decay: float, compute_dtype: torch.dtype | None) -> None:
        before_n, change_n = block.before_n, block.after_n - block.before_n
        step_n = optimizer_step(block.gradient_n, before_n, block.state, options)
        intended_n = step_n if decay == 0 else torch.add(step_n, before_n, alpha=decay)
        moved = int(torch.count_nonzero(change_n))
        self.weight += float(torch.dot(before_n, before_n))
        self.step += float(torch.dot(step_n, step_n))
        self.change += float(torch.dot(change_n, change_n))
        self.product += 0.0 if block.gradient_n is None else float(torch.dot(step_n, block.gradient_n))
        self.moved += moved
        # An element that moved was meant to, so what was meant to move and is not among the moved was lost.
        self.lost += 0 if moved == len(change_n) else max(0, int(torch.count_nonzero(intended_n)) - moved)
        if compute_dtype is None:
            self.moved_in_compute += moved
        else:
            bits_after_n, bits_before_n = (side.to(compute_dtype).view(torch.int16) for side in (block.after_n, before_n))
            self.moved_in_compute += int(torch.count_nonzero(bits_after_n - bits_before_n))


def _blocks(master: Tensor, before: Tensor, state: dict[str, Any]) -> Iterator[_Block]:
    after_N, before_N = master.detach().flatten(), before.flatten()
    gradient_N = None if master.grad is None else master.grad.flatten()
    tensors = {
        key: value.flatten() for key, value in state.items() if isinstance(value, Tensor) and value.shape == master.shape
    }
    rest = {key: value for key, value in state.items() if key not in tensors}
    for start in range(0, len(after_N), _BLOCK):
        part = slice(start, start + _BLOCK)
        yield _Block(
            after_N[part],
            before_N[part],
            None if gradient_N is None else gradient_N[part],
            rest | {key: value[part] for key, value in tensors.items()},
        )


def optimizer_step(gradient: Tensor | None, before: Tensor, state: dict[str, Any], options: dict[str, Any]) -> Tensor:
    """What the optimizer takes off the weights in this update, without weight decay, from its state after the update.

    AdamW   lr · m̂ / (√v̂ + eps),   m̂ = m / (1 - β1^t),  v̂ = v / (1 - β2^t)
    SGD     lr · (momentum buffer, or gradient)
    """
    if gradient is None:
        return torch.zeros_like(before)
    if "exp_avg" in state:
        (beta1, beta2), count = options["betas"], float(state["step"])
        mean, mean_square, lr = state["exp_avg"], state["exp_avg_sq"], float(options["lr"])
        divisor = mean_square.sqrt().div_(math.sqrt(1 - beta2**count)).add_(options["eps"])
        return torch.div(mean, divisor).mul_(lr / (1 - beta1**count))
    if options["momentum"]:
        # The buffer holds this update's decay term as well; older ones stay in it, since they act through momentum.
        return torch.sub(state["momentum_buffer"], before, alpha=options["weight_decay"]).mul_(options["lr"])
    return gradient.mul(options["lr"])


def _totals(
    index: int, rows: Sequence[MatrixChange], sizes: Sequence[int], factor: float, optimizer: str, options: dict[str, Any]
) -> UpdateTotals:
    def whole(name: str) -> float:
        return math.sqrt(math.fsum(getattr(row, name) ** 2 for row in rows))

    def share(name: str) -> float:
        return math.fsum(getattr(row, name) * size for row, size in zip(rows, sizes, strict=True)) / max(1, sum(sizes))

    product = math.fsum((row.step_cosine or 0.0) * row.step_norm * row.clipped_norm for row in rows)
    return UpdateTotals(
        update=index,
        optimizer=optimizer,
        lr=options["lr"],
        weight_decay=options["weight_decay"],
        gradient_norm=whole("gradient_norm"),
        clip_factor=factor,
        step_norm=whole("step_norm"),
        step_cosine=cosine(product, whole("step_norm"), whole("clipped_norm")),
        decay_norm=whole("decay_norm"),
        change_norm=whole("change_norm"),
        changed_share=share("changed_share"),
        changed_share_compute=share("changed_share_compute"),
        lost_share=share("lost_share"),
    )
