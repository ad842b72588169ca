"""A number that changes when any bit of the weights changes, cheap enough to take after every step.

Decisions:
1. Sums of the weights' bits as whole numbers, modulo 2^64: exact in any order of addition, so threads and devices agree.
2. Two sums, so that it is certain and not only likely: the plain one moves with any single changed bit, the one weighted by
   position moves when any two different elements are exchanged (their difference times their distance is below 2^63).
3. It finds accidents and differences between two machines; it is no signature.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor

_COLUMNS, _ROWS = 4096, 16
_BLOCK = _COLUMNS * _ROWS
_WORD_BYTES = 4
_MODULUS = 1 << 64


def weights_checksum(weights: Mapping[str, Tensor]) -> str:
    """32 hexadecimal digits over name, shape, precision and every bit of the weights; the order of the names does not matter.

    Raises ValueError for weights whose elements are not made of whole 32-bit words (bfloat16, float16).

    >>> weight = torch.tensor([1.0, 2.0])
    >>> weights_checksum({"a": weight}) == weights_checksum({"a": weight.clone()})
    True
    >>> weights_checksum({"a": weight}) == weights_checksum({"a": weight.flip(0)})
    False
    """
    lines = [f"{name} {tuple(weight.shape)} {weight.dtype} {bit_sums(weight)}" for name, weight in sorted(weights.items())]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]


@torch.no_grad()
def bit_sums(weight: Tensor) -> tuple[int, ...]:
    """(Σ w_i, Σ i·w_i) modulo 2^64 over the elements' 32-bit words w, i from 0; twice that for 64-bit elements: low, high.

    >>> bit_sums(torch.tensor([3, 5, 7], dtype=torch.int32))
    (15, 19)
    """
    words, rest = divmod(weight.element_size(), _WORD_BYTES)
    if rest:
        raise ValueError(f"expected elements of 32 or 64 bits, got {weight.dtype}; take the checksum of the float32 masters")
    bits_NW = weight.detach().contiguous().reshape(-1, 1).view(torch.int32)
    return tuple(total for word in range(words) for total in _sums(bits_NW[:, word]))


def _sums(bits_N: Tensor) -> tuple[int, int]:
    """Plain and position-weighted sum, in blocks that stay in the processor's cache.

    Inside a block, the weighted sum comes from the sums of its rows and columns, which saves multiplying every element.
    """
    whole = len(bits_N) // _BLOCK * _BLOCK
    rows_R = torch.arange(_ROWS, device=bits_N.device) * _COLUMNS
    columns_C = torch.arange(_COLUMNS, device=bits_N.device)
    plain = torch.zeros((), dtype=torch.int64, device=bits_N.device)
    weighted, by_column_C = torch.zeros_like(plain), torch.zeros_like(columns_C)
    for number, block_RC in enumerate(bits_N[:whole].view(-1, _ROWS, _COLUMNS)):
        wide_RC = block_RC.to(torch.int64)
        by_row_R = wide_RC.sum(1)
        in_block = by_row_R.sum()
        by_column_C += wide_RC.sum(0)
        plain += in_block
        weighted += (rows_R * by_row_R).sum() + number * _BLOCK * in_block
    tail_N = bits_N[whole:].to(torch.int64)
    plain += tail_N.sum()
    weighted += (columns_C * by_column_C).sum() + (torch.arange(whole, len(bits_N), device=bits_N.device) * tail_N).sum()
    return int(plain) % _MODULUS, int(weighted) % _MODULUS
