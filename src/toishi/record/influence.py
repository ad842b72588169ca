"""What is kept of who moved what in a traced step: the nouns, each field with its meaning, and the arrays beside them.

Decisions:
1. What a person reads is influence.json; matrices and the sample of coordinates are influence.safetensors. Both together are
   all that a forecast for other scores needs: no model.
2. Gradients of texts are kept on a fixed random sample of coordinates, drawn uniformly with replacement. Any beginning of the
   sample is a sample itself, so a report may take a shorter one.
3. Meanings stand on the fields themselves: docs/run-folder.md is printed from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from toishi.record.trace import TextKind, described_fields

Arrays = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerNumbers:
    """The optimizer's options in the update."""

    name: Annotated[str, "'adamw' or 'sgd'"]
    lr: Annotated[float, "learning rate"]
    weight_decay: Annotated[float, "weight decay"]
    max_grad_norm: Annotated[float | None, "length that the gradient is cut to; null: never"]
    beta1: Annotated[float, "AdamW; 0 for SGD"]
    beta2: Annotated[float, "AdamW; 0 for SGD"]
    eps: Annotated[float, "AdamW; 0 for SGD"]
    count: Annotated[int, "AdamW: number of this update since the state was fresh, from 1; 0 for SGD"]
    momentum: Annotated[float, "SGD"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardShare:
    """A reward's part of an answer's advantage and of its push."""

    reward: Annotated[str, "name of the reward or of the judge's criterion; 'rest' is what the rule leaves over"]
    advantage: Annotated[float, "its part of the advantage, with the step's own divisor held fixed"]
    share: Annotated[float, "its part of the answer's share"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextInfluence:
    """A watched text: what moved it. All changes in nats of the whole text; own + others + fixed + history + decay + rounding +
    rest = measured."""

    kind: Annotated[TextKind, "as in after.parquet"]
    group: Annotated[int | None, "the prompt's position in the step; null for a prompt that is not in it"]
    member: Annotated[int | None, "the answer; null for one that was not sampled"]
    row: Annotated[int, "its row in the arrays: gradient of the log-prob of the whole text"]
    source: Annotated[int | None, "row of the gradient that its advantage multiplies; null: not learned from"]
    advantage: Annotated[float, "its advantage (mean over its tokens); 0 outside the step"]
    weight: Annotated[float, "its share of the loss: coefficient = weight x advantage"]
    coefficient: Annotated[float, "what its gradient is multiplied by, before clipping"]
    share: Annotated[float, "its share of the push; all shares and `fixed_share` add up to 1; below 0: pulled against the step"]
    parts: Annotated[tuple[RewardShare, ...], "the share by reward; they add up to it"]
    tokens: Annotated[
        tuple[float, ...],
        "the share by token of the answer, 0 where there is no loss; they add up to it. Empty unless asked for "
        "(`toishi explain --tokens`)",
    ]
    measured: Annotated[float, "measured change of its log-prob"]
    own: Annotated[float, "what its own push did, to first order"]
    others: Annotated[float, "what all other answers' pushes did"]
    fixed: Annotated[float, "what terms without an advantage did (KL, entropy)"]
    history: Annotated[float, "what the optimizer still remembered of earlier steps"]
    decay: Annotated[float, "what weight decay did"]
    rounding: Annotated[float, "real change of the weights less the intended one, to first order"]
    rest: Annotated[float, "measured less all of these: what a straight line cannot hold (curvature)"]

    @property
    def linear(self) -> float:
        """First-order change by the real change of the weights."""
        return self.measured - self.rest


@dataclass(frozen=True, slots=True, kw_only=True)
class Influence:
    """Who moved what in one optimizer update."""

    step: Annotated[int, "training step"]
    update: Annotated[int, "optimizer update of the step, from 0"]
    num_updates: Annotated[int, "optimizer updates that the step made; of several, the first is accounted for"]
    precision: Annotated[str, "precision in which gradients of texts were computed"]
    optimizer: Annotated[OptimizerNumbers, "the optimizer's numbers"]
    gradient_norm: Annotated[float, "norm of the gradient before clipping, as the update measured it"]
    norm_from_products: Annotated[float, "the same from the products of the texts' gradients"]
    clip_factor: Annotated[float, "what the gradient was multiplied by"]
    sum_error: Annotated[float, "|sum of the answers' gradients - the update's own gradient|, relative to the latter"]
    fixed_share: Annotated[float, "share of the push by terms without an advantage"]
    survived: Annotated[
        float | None,
        "how far the weights that the model computes with went along the intended step, relative to it: below 1, rounding "
        "took the rest; above 1, rounding added to it. An account is given from 0.5 to 2",
    ]
    changed_share: Annotated[float, "share of the weights whose stored value changed"]
    step_norm: Annotated[float, "norm of the real change of the weights"]
    gap: Annotated[float, "|measured - first order| over all texts, relative to |measured|; explained = 1 - gap"]
    largest: Annotated[float, "largest |measured change|, nats"]
    trust: Annotated[str, "'straight' (up to 1 nat), 'bent' (up to 10), 'too_far' (no forecast)"]
    refused: Annotated[str, "why no account is given; empty for a given one"]
    num_coordinates: Annotated[int, "trained weights of the model"]
    num_sampled: Annotated[int, "coordinates in the sample"]
    complete: Annotated[bool, "the sample is all coordinates, each once"]
    seed: Annotated[int, "seed of the sample"]
    matrices: Annotated[tuple[str, ...], "names of the trained weights: the rows of `effects`"]
    notes: Annotated[tuple[str, ...], "what was left out, and why"]
    texts: Annotated[tuple[TextInfluence, ...], "the watched texts"]

    @property
    def has_tokens(self) -> bool:
        """Whether every answer that was learned from has its share token by token."""
        return all(text.tokens for text in self.texts if text.source is not None)


ARRAYS = {
    "products": "float64 [R, R]: <g_i, g_j> of all rows; exact",
    "metric": "float64 [R, R]: <g_j, M g_i>, M = d step / d (clipped gradient) of the real step: lr for SGD, lr (1 - beta1) / "
    "(1 - beta1^t) / (sqrt(v) + eps) for AdamW. Columns of rows that did not push are 0. For the account of the real step only",
    "fixed_products": "float64 [R + 1]: <g_j, gamma_fix>, and |gamma_fix|^2 last",
    "history": "float64 [R]: change of each row's text by what the optimizer remembered, and by weight decay in `decay`",
    "decay": "float64 [R]",
    "measured": "float64 [R]: measured change of each row's text; nan for a row that is no text's",
    "linear": "float64 [R]: its change to first order by the real change of the weights",
    "effects": "float64 [M, R]: the same, matrix by matrix; columns add up to `linear`",
    "coordinates": "int64 [I]: the sample, positions in all trained weights laid end to end in the order of `matrices`",
    "gradients": "float16 [R, I]: g_jk / scale_j on the sample",
    "scales": "float64 [R]: scale_j",
    "fixed_gradient": "float32 [I]: gamma_fix on the sample",
    "mean": "float32 [I]: optimizer's running mean before the step in the direction of ascent (minus exp_avg); 0 for SGD",
    "square": "float32 [I]: running mean of squares before the step; 0 for SGD",
}
"""Array in influence.safetensors -> what it is. R rows of gradients, I sampled coordinates, M trained matrices."""


def influence_fields() -> dict[str, str]:
    """Dotted name of every field of influence.json -> its meaning."""
    files = {
        "arrays_sha256": "sha256 of influence.safetensors",
        "schema_version": "version of this layout",
        "seal": "sha256 of the rest of the file",
    }
    return dict(described_fields(Influence)) | files
