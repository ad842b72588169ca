"""Lengths and products of large tensors that do not lose digits.

Decision: a float32 sum over tens of millions of squares comes out percents too low, so numbers are added in blocks and the
blocks' sums in float64.
"""

from __future__ import annotations

import torch
from torch import Tensor

_NORM_BLOCK = 1 << 10
_DOT_BLOCK = 1 << 16


def norm(values: Tensor) -> float:
    """Euclidean length.

    >>> norm(torch.tensor([3.0, 4.0]))
    5.0
    """
    values_N = values.detach().flatten()
    whole = len(values_N) // _NORM_BLOCK * _NORM_BLOCK
    blocks_K = torch.linalg.vector_norm(values_N[:whole].view(-1, _NORM_BLOCK), dim=1)
    return float(torch.linalg.vector_norm(torch.cat([blocks_K.double(), values_N[whole:].double()])))


def dot(one: Tensor, other: Tensor) -> float:
    """Σ one_i · other_i over all elements of two tensors of the same shape and precision.

    >>> dot(torch.tensor([1.0, 2.0]), torch.tensor([3.0, -1.0]))
    1.0
    """
    pairs = zip(torch.split(one.detach().flatten(), _DOT_BLOCK), torch.split(other.detach().flatten(), _DOT_BLOCK), strict=True)
    return float(torch.stack([torch.dot(left, right) for left, right in pairs]).double().sum())


def cosine(product: float, one_norm: float, other_norm: float) -> float | None:
    """The cosine from a product and two lengths; None when one of them is 0.

    >>> cosine(3.0, 3.0, 1.0), cosine(0.0, 0.0, 1.0)
    (1.0, None)
    """
    return product / (one_norm * other_norm) if one_norm > 0 and other_norm > 0 else None
