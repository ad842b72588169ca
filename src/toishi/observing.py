"""The seam at which somebody may look into the updates of a step without touching them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from toishi.packing import PackedRow
from toishi.policy.head import Predictions


@dataclass(frozen=True, slots=True, kw_only=True)
class Denominators:
    """Counts over one whole optimizer update."""

    num_tokens: int
    num_sequences: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRow:
    """A packed row between its forward and its backward pass: log-probs and entropies still hang on the model's graph.

    predicted        gives all logits at chosen positions, on request
    token_weights_N  d loss / d log-prob, as it is about to be back-propagated
    """

    row: PackedRow
    predicted: Predictions
    logprobs_N: Tensor
    entropy_N: Tensor
    old_logprobs_N: Tensor
    ref_logprobs_N: Tensor | None
    divergence_N: Tensor | None
    token_weights_N: Tensor
    counts: Denominators


class Observer(Protocol):
    """Looks at the updates of a step from inside and changes nothing."""

    def row(self, index: int, seen: SeenRow) -> None:
        """A row of update `index` was run forward."""

    def before(self, index: int, clip_factor: float) -> None:
        """The gradients of update `index` are complete and were multiplied by `clip_factor`; no weight has moved yet."""

    def after(self, index: int) -> None:
        """The masters have moved and the compute weights follow them."""
