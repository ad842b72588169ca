"""Names weights by their content."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor, nn


def weights_fingerprint(module: nn.Module) -> str:
    """sha256 over the lines `name shape sha256(float32 bytes)` of all parameters, sorted by name; tied ones count once.

    Bfloat16 and float16 values are exact in float32, so the precision they were loaded in does not matter. Float64 weights
    are rounded to float32 first. Buffers, configuration and tokenizer are not covered.

    >>> layer = nn.Linear(2, 1)
    >>> weights_fingerprint(layer) == weights_fingerprint(layer.double())
    True
    """
    named = sorted(module.named_parameters())
    with ThreadPoolExecutor(max_workers=4) as pool:
        digests = pool.map(lambda item: _digest(item[1]), named)
        lines = [f"{name} {tuple(weight.shape)} {digest}" for (name, weight), digest in zip(named, digests, strict=True)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _digest(weight: Tensor) -> str:
    values = weight.detach().to("cpu", torch.float32).contiguous()
    return hashlib.sha256(values.numpy().data).hexdigest()
