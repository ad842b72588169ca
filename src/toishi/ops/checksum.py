"""A number that changes when any bit of the weights changes, cheap enough to take after every step.

Decisions:
1. The weights' bits are read as a table of 64-bit whole numbers, and the sums of its rows and of its columns, modulo 2^64, are
   hashed. Whole numbers add up to the same in any order, so threads and devices agree.
2. It is certain, not only likely, that one changed element is noticed, and that two different elements that changed places are:
   at least one row or one column then has another sum.
3. Only the sums leave the device, and each weight is read once per table side: about a hundredth of a training step.
4. It finds accidents and differences between two machines; it is no signature.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor

_COLUMNS = 4096
_WORD_BYTES = 8


def weights_checksum(weights: Mapping[str, Tensor]) -> str:
    """32 hexadecimal digits over name, shape, precision and every bit of the weights; the order of the names does not matter.

    >>> weight = torch.tensor([1.0, 2.0])
    >>> weights_checksum({"a": weight}) == weights_checksum({"a": weight.clone()})
    True
    >>> weights_checksum({"a": weight}) == weights_checksum({"a": weight.flip(0)})
    False
    """
    digest = hashlib.sha256()
    for name, weight in sorted(weights.items()):
        digest.update(f"{name} {tuple(weight.shape)} {weight.dtype}\n".encode())
        for part in bit_sums(weight):
            digest.update(part.cpu().numpy().tobytes())
    return digest.hexdigest()[:32]


@torch.no_grad()
def bit_sums(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Row sums (R,) and column sums (4096,) of the bits as R rows of 4096 whole numbers, and the bytes that fill no row.

    >>> rows_R, columns_C, rest = bit_sums(torch.arange(4097))
    >>> rows_R.tolist(), columns_C[:3].tolist(), rest.tolist()
    ([8386560], [0, 1, 2], [0, 16, 0, 0, 0, 0, 0, 0])
    """
    bytes_N = weight.detach().contiguous().reshape(-1).view(torch.uint8)
    if bytes_N.storage_offset() % _WORD_BYTES:
        bytes_N = bytes_N.clone()
    whole = len(bytes_N) // (_COLUMNS * _WORD_BYTES) * _COLUMNS * _WORD_BYTES
    table_RC = bytes_N[:whole].view(torch.int64).view(-1, _COLUMNS)
    return table_RC.sum(1), table_RC.sum(0), bytes_N[whole:]
