"""One weight at a time: gradients of all rows are made, multiplied with one another and with the step, sampled, and dropped.

Decisions:
1. A few lines of the weight at a time, so that all texts' gradients of that piece stay in the processor's cache. Products are
   added up in float64 over pieces: one long float32 sum would come out percents too low.
2. All that is multiplied stands in one table, so that a piece takes one matrix product, and the table is the same memory for
   all pieces: fresh pages cost more than what is written to them.
3. The product is made with a few rows more than were asked for: by 16 it takes less time than by 11.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from toishi.tracing.influence.coordinates import Coordinates
from toishi.tracing.influence.factors import Factors
from toishi.tracing.influence.layers import Uses
from toishi.tracing.influence.weights import OptimizerPiece, Weight, means_before, optimizer_piece

_PIECE = 1 << 16
"""Elements of a weight that are looked at together."""
_EVEN = 16
_CHANGE, _MEMORY, _DECAY, _BESIDE = range(4)
"""What stands in the table below the rows' gradients, and how many they are."""


@dataclass
class Sums:
    """All that is added up over the weights. R rows, I sampled coordinates in the order in which they stand in the weights.

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


@dataclass(kw_only=True)
class Step:
    """What all weights share.

    coefficients_R  what each row's gradient is multiplied by in the direction of ascent, before clipping
    """

    coefficients_R: Tensor
    options: Mapping[str, Any]
    clip_factor: float
    coordinates: Coordinates
    _memory: Tensor = field(default_factory=lambda: torch.empty(0))

    @property
    def num_rows(self) -> int:
        return len(self.coefficients_R)

    @cached_property
    def pushing(self) -> list[int]:
        """Rows that pushed: what the others' gradients did to a text is 0."""
        return [row for row, coefficient in enumerate(self.coefficients_R.tolist()) if coefficient]

    @property
    def height(self) -> int:
        """Rows of the table: gradients, what stands beside them, and the gradients that pushed in the step's own metric."""
        return self.num_rows + _BESIDE + len(self.pushing)

    def table(self, num_elements: int, like: Tensor) -> Tensor:
        """Room for a piece, (at least `height`, num_elements). It holds what the last piece left there."""
        rows = max(self.height, _even(self.num_rows))
        if len(self._memory) < rows * num_elements or self._memory.dtype != like.dtype:
            self._memory = like.new_zeros(rows * max(num_elements, _PIECE))
        return self._memory[: rows * num_elements].view(rows, num_elements)


def _even(rows: int) -> int:
    return -(-rows // _EVEN) * _EVEN


@torch.no_grad()
def contract(weight: Weight, uses: Uses, step: Step, sums: Sums) -> None:
    """Adds a weight's part to the sums."""
    columns, num_rows, dtype = weight.columns, step.num_rows, weight.before.dtype
    num_lines = weight.before.numel() // columns
    at_once = max(1, _PIECE // columns)
    factors = [(row, found.to(dtype)) for row, found in uses.factors]
    whole = [(row, found.reshape(len(found), -1, columns).to(dtype)) for row, found in uses.whole]
    sampled = step.coordinates.inside(weight.name, weight.before.numel(), at_once * columns)
    found_MR = torch.zeros(step.height, num_rows, dtype=torch.float64)
    for first, (places, positions) in zip(range(0, num_lines, at_once), sampled, strict=True):
        count = min(at_once, num_lines - first)
        table_Mn = step.table(count * columns, weight.before)
        _write_gradients(table_Mn[:num_rows].view(num_rows, count, columns), factors, whole, first)
        sums.gradients_RI[:, places] = table_Mn[:num_rows, positions].to(sums.gradients_RI)
        found_MR += _multiplied(table_Mn, weight.lines(first, count), step, sums)
    last = num_rows + _BESIDE
    sums.products_RR += found_MR[:num_rows]
    sums.effects[weight.name] = found_MR[num_rows + _CHANGE]
    sums.memory_R += found_MR[num_rows + _MEMORY]
    sums.decay_R += found_MR[num_rows + _DECAY]
    sums.metric_RR[:, step.pushing] += found_MR[last:].T
    if weight.gradient is not None:
        ((places, positions),) = step.coordinates.inside(weight.name, weight.before.numel(), weight.before.numel())
        chosen = weight.lines(0, num_lines).at(positions)
        assert chosen.gradient is not None
        mean_I, square_I = means_before(chosen.gradient, chosen.state, step.options)
        sums.mean_I[places], sums.square_I[places] = mean_I.to(sums.mean_I), square_I.to(sums.square_I)


def _write_gradients(
    made_RLC: Tensor, factors: Sequence[tuple[int, Factors]], whole: Sequence[tuple[int, Tensor]], first: int
) -> None:
    """Lines first, first + 1, ... of every row's gradient."""
    blank = set(range(len(made_RLC)))
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
        made_RLC[row : row + len(all_lines)] += all_lines[:, first : first + made_RLC.shape[1]]


def _multiplied(table_Mn: Tensor, weight: Weight, step: Step, sums: Sums) -> Tensor:
    """Fills the table below the gradients, and adds lengths to the sums. Returns the products of the table's rows with the
    gradients, (height, R), in float64."""
    num_rows, last = step.num_rows, step.num_rows + _BESIDE
    rows_Rn, change_n = table_Mn[:num_rows], weight.change
    if weight.gradient is None:
        gradient_n, did = torch.zeros_like(change_n), OptimizerPiece(0.0, None, None)
    else:
        gradient_n = weight.gradient
        did = optimizer_piece(gradient_n, weight.before, weight.state, step.options)
    ascent_n = step.coefficients_R.to(rows_Rn) @ rows_Rn
    _add_lengths(sums, change_n, did.intended(gradient_n), gradient_n / step.clip_factor, ascent_n)
    for place, part_n in ((_CHANGE, change_n), (_MEMORY, did.memory_n), (_DECAY, did.decay_n)):
        table_Mn[num_rows + place] = 0.0 if part_n is None else part_n
    even_En = table_Mn[: _even(num_rows)]
    if not isinstance(did.metric, Tensor):
        found_MR = products(table_Mn[:last], even_En)[:, :num_rows]
        return torch.cat([found_MR, did.metric * found_MR[step.pushing]])
    for place, row in enumerate(step.pushing, start=last):
        torch.mul(rows_Rn[row], did.metric, out=table_Mn[place])
    return products(table_Mn[: step.height], even_En)[:, :num_rows]


def _add_lengths(sums: Sums, change_n: Tensor, intended_n: Tensor, whole_n: Tensor, ascent_n: Tensor) -> None:
    """Adds squared lengths: of the real and the intended step, the gradient, and what the texts' gradients miss of it."""
    sums.changed += int(torch.count_nonzero(change_n))
    sums.step_real += float(torch.dot(change_n, change_n))
    sums.step_common += float(torch.dot(change_n, intended_n))
    sums.step_intended += float(torch.dot(intended_n, intended_n))
    sums.whole += float(torch.dot(whole_n, whole_n))
    off_n = ascent_n.add_(whole_n)
    sums.off += float(torch.dot(off_n, off_n))


def products(one_Rn: Tensor, other_Sn: Tensor) -> Tensor:
    """one · otherᵀ in float64 over pieces, [R, S], on the processor.

    >>> products(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0], [1.0, 0.0]])).tolist()
    [[11.0, 1.0]]
    """
    pairs = zip(torch.split(one_Rn, _PIECE, dim=1), torch.split(other_Sn, _PIECE, dim=1), strict=True)
    return torch.stack([left @ right.T for left, right in pairs]).double().sum(0).cpu()
