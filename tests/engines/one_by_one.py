"""The reference for engines: one answer at a time, a whole plain forward pass of the unmodified model for every token.

No cache, no batch, no mask. Truncations and the draw are written from their definitions over sorted Python lists.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch

from toishi.engines.base import Request, Sampling
from toishi.ops.random import uniforms


@dataclass(frozen=True)
class Reference:
    """An answer, and for each token how far its uniform numbers were from the nearest ends of its intervals."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    entropies: tuple[float, ...]
    margins: tuple[float, ...]
    stopped: bool


def sampled_one_by_one(module: Any, request: Request, sampling: Sampling, stop_ids: Sequence[int]) -> Reference:
    """The answer that the request must get."""
    ids = list(request.prompt_ids)
    draws = uniforms(request.key, 2 * sampling.max_new_tokens).reshape(-1, 2).tolist()
    tokens, logprobs, entropies, margins = [], [], [], []
    for draw in draws:
        with torch.no_grad():
            logits = module(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].double() / sampling.temperature
        probs = truncated(torch.softmax(logits, -1).tolist(), sampling)
        if sampling.greedy:
            token = max(range(len(probs)), key=lambda index: probs[index])
            ordered = sorted(probs)
            margins.append(ordered[-1] - ordered[-2])
        else:
            token, margin = inverted(probs, draw)
            margins.append(margin)
        tokens.append(token)
        logprobs.append(math.log(probs[token]))
        entropies.append(-sum(p * math.log(p) for p in probs if p > 0))
        ids.append(token)
        if token in stop_ids:
            break
    return Reference(tuple(tokens), tuple(logprobs), tuple(entropies), tuple(margins), tokens[-1] in stop_ids)


def inverted(probs: Sequence[float], draw: Sequence[float]) -> tuple[int, float]:
    """The token whose block of 256 holds the first number and which holds the second inside the block; and how near it was."""
    blocks = [probs[start : start + 256] for start in range(0, len(probs), 256)]
    block, block_margin = _place([sum(block) for block in blocks], draw[0])
    place, margin = _place(blocks[block], draw[1])
    return 256 * block + place, min(block_margin, margin)


def _place(weights: Sequence[float], number: float) -> tuple[int, float]:
    ends = list(accumulate(weights))
    place = next(index for index, end in enumerate(ends) if end > number * ends[-1] and weights[index] > 0)
    begin, end = (ends[place] - weights[place]) / ends[-1], ends[place] / ends[-1]
    return place, min(number - begin, end - number)


def truncated(probs: list[float], sampling: Sampling) -> list[float]:
    """The probabilities after top-k, min-p and top-p, each of the untruncated distribution, summing to 1."""
    ranked = sorted(probs, reverse=True)
    least = ranked[sampling.top_k - 1] if 0 < sampling.top_k < len(probs) else 0.0
    least = max(least, sampling.min_p * ranked[0])
    if sampling.top_p < 1:
        reached = [total >= sampling.top_p for total in accumulate(ranked)]
        least = max(least, ranked[reached.index(True) if any(reached) else -1])
    kept = [p if p >= least else 0.0 for p in probs]
    return [p / sum(kept) for p in kept]
