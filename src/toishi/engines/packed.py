"""Matrix products of the decode loop with weights laid out once for a whole call, on a CPU.

Decisions:
1. oneDNN rearranges a plain weight in every product, which counts when there are few rows. So weights are rearranged once, for
   all steps of a call. The products are the same, bit for bit in bf16 (tests/engines/test_packed.py).
2. The copies live as long as the call: weights change between calls, and training needs the memory.
3. Measured on a CPU with AVX512-bf16 and a model of 135 million weights: a layer's product takes 0.68 of the plain time with 8
   rows and 0.87 with 32, the head's 0.73; rearranging takes as long as the products of three steps of 32 rows. So it is left
   out for short answers and small matrices.
4. A step that is written out (engines.flat) gets q, k and v as one product, and what follows a product (SiLU, times the other
   half, plus the residual) inside it: in bf16 that is rounded once instead of twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

LEAST_STEPS = 32
LEAST_WEIGHTS = 2**16


class Products:
    """Products for a written-out step: with rearranged weights where `packed` holds those needed, else the modules' own."""

    def __init__(self, packed: dict[nn.Module, Tensor]) -> None:
        self.packed = packed

    def beside(self, *linears: Any) -> Callable[[Tensor], Tensor]:
        """inputs -> the results of several linear layers, side by side."""
        if not all(linear in self.packed for linear in linears) or len({linear.bias is None for linear in linears}) > 1:
            return lambda inputs: torch.cat([linear(inputs) for linear in linears], dim=-1)
        bias = None if linears[0].bias is None else torch.cat([linear.bias for linear in linears])
        return partial(_product, _rearranged(torch.cat([linear.weight for linear in linears])), bias)

    def gated(self, gate: Any, up: Any) -> Callable[[Tensor], Tensor]:
        """inputs -> silu(gate(inputs)) * up(inputs)."""
        if gate not in self.packed or up not in self.packed:
            return lambda inputs: nn.functional.silu(gate(inputs)).mul_(up(inputs))
        halves = (self.packed[gate], gate.bias), (self.packed[up], up.bias)

        def gated_product(inputs: Tensor) -> Tensor:
            return _joined(*halves[1], "mul", inputs, _product(*halves[0], inputs, then="swish"))

        return gated_product

    def added(self, linear: Any) -> Callable[[Tensor, Tensor], Tensor]:
        """inputs, residual -> residual + linear(inputs)."""
        if linear not in self.packed:
            return lambda inputs, residual: residual + linear(inputs)
        return partial(_joined, self.packed[linear], linear.bias, "add")


@contextmanager
def packed_weights(module: Any, *, steps: int) -> Iterator[Products]:
    """Inside, the linear layers of `module` compute with rearranged copies of their weights, where that pays for `steps` steps.

    Weights must not change inside. Models on a GPU, or in a precision that oneDNN does not know, stay as they are.
    """
    linears = [part for part in module.modules() if _is_packable(part)] if steps >= LEAST_STEPS else []
    packed = {linear: _rearranged(linear.weight) for linear in linears}
    for linear, weight in packed.items():
        linear.forward = partial(_product, weight, linear.bias)
    try:
        yield Products(packed)
    finally:
        for linear in linears:
            del linear.forward


def _rearranged(weight: Tensor) -> Tensor:
    return torch.ops.mkldnn._reorder_linear_weight(weight.detach(), None)  # type: ignore[no-any-return]


def _product(weight: Tensor, bias: Tensor | None, inputs: Tensor, *, then: str = "none") -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(inputs, weight, bias, then, [], "")  # type: ignore[no-any-return]


def _joined(weight: Tensor, bias: Tensor | None, how: str, inputs: Tensor, other: Tensor) -> Tensor:
    """The product, times ("mul") or plus ("add") `other`."""
    return torch.ops.mkldnn._linear_pointwise.binary(inputs, other, weight, bias, how)  # type: ignore[no-any-return]


def _is_packable(part: nn.Module) -> bool:
    """A plain linear layer on a CPU, large enough, whose forward nobody has replaced."""
    if type(part) is not nn.Linear or "forward" in vars(part) or not hasattr(torch.ops.mkldnn, "_reorder_linear_weight"):
        return False
    weight = part.weight
    return weight.device.type == "cpu" and weight.dtype in (torch.bfloat16, torch.float32) and weight.numel() >= LEAST_WEIGHTS
