"""What matrix products of a model's own shapes reach on this machine: the limit that sampling and training are held against.

Training pass:
  useful FLOP   6 x (weights in the layers' products x fed tokens + weights of the head x trained tokens): a multiplication and
                an addition, forward, for the gradient of the input and for the gradient of the weight. Fed tokens are the
                fewest that do (`Shape.fed_tokens`: every prompt once), so recomputing, padding and prompts fed twice earn
                nothing. Products inside attention, norms and everything else count 0.
  limit         FLOP / second of the products that the pass itself makes: every `mm` of one update is noted with its shape,
                layout and precision, and each is then measured alone, hot, the median of several; weighted by how often it
                occurred.
  share         useful FLOP / (seconds of the training pass x limit).

Decoding with M rows:
  useful FLOP   2 x (all weights in products) x M for each token after the first.
  limit         FLOP / second of all linear layers of the model in order, with M rows, each with its own weight and laid out as
                the engine does it or plainly, whichever is faster.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

_PRODUCTS = {"mm": (0, 1), "addmm": (1, 2), "addmm_": (1, 2)}


@dataclass(frozen=True)
class Product:
    """One matrix product (M, K) x (K, N): which operands lie transposed in memory, and the precision."""

    M: int
    K: int
    N: int
    left_transposed: bool
    right_transposed: bool
    dtype: torch.dtype

    @property
    def flop(self) -> int:
        """
        >>> Product(2, 3, 4, False, True, torch.float32).flop
        48
        """
        return 2 * self.M * self.K * self.N


class Products(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the matrix products that are made inside, whoever makes them."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts: Counter[Product] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        places = _PRODUCTS.get(func.overloadpacket.__name__)
        if places is not None:
            left, right = (args[place] for place in places)
            flags = (_is_transposed(left), _is_transposed(right))
            self.counts[Product(left.shape[0], left.shape[1], right.shape[1], *flags, left.dtype)] += 1
        return func(*args, **(kwargs or {}))


def _is_transposed(matrix: Tensor) -> bool:
    return matrix.stride(0) == 1 and matrix.stride(1) != 1


def products_rate(counts: Counter[Product], device: torch.device, *, repeats: int = 5) -> float:
    """FLOP / second that the products reach, each alone, weighted by how often they occur."""
    seconds = {product: _median_s(_call(product, device), device, repeats) for product in counts}
    return sum(count * product.flop for product, count in counts.items()) / sum(
        count * seconds[product] for product, count in counts.items()
    )


def whole_row_rate(module: nn.Module, rows: int, dtype: torch.dtype, *, repeats: int = 5) -> float:
    """FLOP / second of the three products of every linear layer with `rows` rows: what a pass that never splits would reach."""
    counts: Counter[Product] = Counter()
    for weight in linear_weights(module):
        out, into = weight.shape
        counts[Product(rows, into, out, False, True, dtype)] += 1
        counts[Product(rows, out, into, False, False, dtype)] += 1
        counts[Product(out, rows, into, True, False, dtype)] += 1
    return products_rate(counts, next(module.parameters()).device, repeats=repeats)


def linear_weights(module: nn.Module) -> list[Tensor]:
    """Weights of all linear layers, in order; a tied head is there once."""
    return [part.weight.detach() for part in module.modules() if isinstance(part, nn.Linear)]


def training_flop(module: nn.Module, *, fed_tokens: int, trained_tokens: int) -> float:
    """Useful FLOP of a training pass."""
    return 6.0 * (layer_weights(module) * fed_tokens + _head_size(module) * trained_tokens)


def layer_weights(module: nn.Module) -> int:
    """Weights in products, without those of the head."""
    return sum(weight.numel() for weight in linear_weights(module)) - _head_size(module)


def decoding_flop(module: nn.Module, *, rows: int, tokens: int) -> float:
    """Useful FLOP of `tokens` decoding steps with `rows` rows."""
    return 2.0 * sum(weight.numel() for weight in linear_weights(module)) * rows * tokens


@torch.inference_mode()
def decoding_rate(module: nn.Module, rows: int, *, repeats: int = 5) -> float:
    """FLOP / second of all linear layers in order with `rows` rows: plainly or with rearranged weights, the faster."""
    weights = linear_weights(module)
    inputs = {weight.shape[1]: torch.randn(rows, weight.shape[1]).to(weight) for weight in weights}
    ways: list[Callable[[], Any]] = [lambda: [nn.functional.linear(inputs[weight.shape[1]], weight) for weight in weights]]
    if weights[0].device.type == "cpu" and hasattr(torch.ops.mkldnn, "_reorder_linear_weight"):
        arranged = [(weight.shape[1], torch.ops.mkldnn._reorder_linear_weight(weight, None)) for weight in weights]
        product = torch.ops.mkldnn._linear_pointwise
        ways.append(lambda: [product(inputs[into], weight, None, "none", [], "") for into, weight in arranged])
    fastest = min(_median_s(way, weights[0].device, repeats) for way in ways)
    return decoding_flop(module, rows=rows, tokens=1) / fastest


def _head_size(module: Any) -> int:
    head = module.get_output_embeddings()
    return 0 if head is None else int(head.weight.numel())


def _call(product: Product, device: torch.device) -> Callable[[], Any]:
    def operand(rows: int, columns: int, is_transposed: bool) -> Tensor:
        shape = (columns, rows) if is_transposed else (rows, columns)
        values = torch.randn(shape, device=device).to(product.dtype)
        return values.t() if is_transposed else values

    left = operand(product.M, product.K, product.left_transposed)
    right = operand(product.K, product.N, product.right_transposed)
    return lambda: torch.mm(left, right)


def _median_s(call: Callable[[], Any], device: torch.device, repeats: int) -> float:
    """Median seconds of one call; short ones are made several times between two looks at the clock."""

    def timed(count: int) -> float:
        begin = time.perf_counter()
        for _ in range(count):
            call()
        if device.type == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - begin) / count

    timed(2)
    count = max(1, int(0.005 / timed(1)))
    return statistics.median(timed(count) for _ in range(repeats))
