"""Matrix products of the decode loop with weights laid out once for a whole call, on a CPU.

Decisions:
1. oneDNN rearranges a plain weight in every product, which counts when there are few rows. So weights are rearranged once, for
   all steps of a call. The products are the same, bit for bit in bf16 (tests/engines/test_packed.py).
2. The copies live as long as the call: weights change between calls, and training needs the memory.
3. Measured on a CPU with AVX512-bf16 and a model of 135 million weights: a layer's product takes 0.68 of the plain time with 8
   rows and 0.87 with 32, the head's 0.73; rearranging takes as long as the products of three steps of 32 rows. So it is left
   out for short answers and small matrices.
4. One product for q, k and v instead of three, or for gate and up, gained 2% of a layer's products: not done.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

LEAST_STEPS = 32
LEAST_WEIGHTS = 2**16


@contextmanager
def packed_weights(module: Any, *, steps: int) -> Iterator[None]:
    """Inside, the linear layers of `module` compute with rearranged copies of their weights, where that pays for `steps` steps.

    Weights must not change inside. Models on a GPU, or in a precision that oneDNN does not know, stay as they are.
    """
    linears = [part for part in module.modules() if _is_packable(part)] if steps >= LEAST_STEPS else []
    for linear in linears:
        weight = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), None)
        linear.forward = partial(_product, weight, linear.bias)
    try:
        yield
    finally:
        for linear in linears:
            del linear.forward


def _product(weight: Tensor, bias: Tensor | None, inputs: Tensor) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(inputs, weight, bias, "none", [], "")  # type: ignore[no-any-return]


def _is_packable(part: nn.Module) -> bool:
    """A plain linear layer on a CPU, large enough, whose forward nobody has replaced."""
    if type(part) is not nn.Linear or "forward" in vars(part) or not hasattr(torch.ops.mkldnn, "_reorder_linear_weight"):
        return False
    weight = part.weight
    return weight.device.type == "cpu" and weight.dtype in (torch.bfloat16, torch.float32) and weight.numel() >= LEAST_WEIGHTS
