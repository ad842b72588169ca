"""What a trace of a step holds: the nouns, each field with its meaning, and the columns of its two tables.

Decisions:
1. A trace is measured, not predicted: log-probs come from forward passes before and after the step, changes from subtraction.
2. Long lists go to parquet (a row a text, a row a matrix and update), the rest is trace.json; `Trace` is all of it together.
3. Meanings stand on the fields themselves: docs/run-folder.md is printed from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import pyarrow as pa

from toishi.record.columns import Column

TextKind = Literal["rollout", "greedy", "reference", "other_prompt"]
DirectionName = Literal["sft", "grpo", "grpo_negative"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedText:
    """An answer whose log-prob was measured before and after the step: a row of after.parquet.

    kind  'rollout' (an answer of the step), 'greedy' (the most likely answer before the step), 'reference' (the right answer as
          text), 'other_prompt' (the greedy answer to a prompt that is not in the step)
    """

    kind: TextKind
    group: int | None
    member: int | None
    prompt_id: str
    text: str
    token_ids: tuple[int, ...]
    token_texts: tuple[str, ...]
    loss_mask: tuple[int, ...]
    before: tuple[float, ...]
    after: tuple[float, ...]

    @property
    def change(self) -> float:
        """Change of the whole answer's log-prob in nats: > 0 is more likely than before."""
        return sum(self.after) - sum(self.before)


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixChange:
    """What became of the gradient in one weight matrix in one update: a row of changes.parquet."""

    update: int
    name: str
    shape: tuple[int, ...]
    weight_norm: float
    gradient_norm: float
    clipped_norm: float
    step_norm: float
    step_cosine: float | None
    decay_norm: float
    change_norm: float
    relative_change: float | None
    changed_share: float
    changed_share_compute: float
    lost_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """A token that could stand at a position."""

    token_id: Annotated[int, "the token"]
    text: Annotated[str, "the token as text"]
    before: Annotated[float, "its probability before the step"]
    after: Annotated[float, "its probability after the step"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedPosition:
    """A position of an answer with the likeliest tokens there, before and after the step."""

    group: Annotated[int, "the answer's group"]
    member: Annotated[int, "the answer"]
    token: Annotated[int, "position in the answer, from 0"]
    why: Annotated[Literal["first", "heaviest"], "the answer's first token, or the one with the largest |token weight|"]
    token_weight: Annotated[float, "d loss / d logprob in the first update; 0 when the answer was not computed"]
    alternatives: Annotated[
        tuple[Alternative, ...], "the answer's own token, then the five likeliest before and the five likeliest after"
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateTotals:
    """One optimizer update over all matrices."""

    update: Annotated[int, "index of the update"]
    optimizer: Annotated[str, "'adamw' or 'sgd'"]
    lr: Annotated[float, "learning rate"]
    weight_decay: Annotated[float, "weight decay"]
    gradient_norm: Annotated[float, "norm of the whole gradient"]
    clip_factor: Annotated[float, "what the gradient was multiplied by; 1: not clipped"]
    step_norm: Annotated[float, "norm of the optimizer's own step, without decay"]
    step_cosine: Annotated[float | None, "cosine between that step and plain descent along the gradient: 1 for SGD"]
    decay_norm: Annotated[float, "norm of what weight decay took off"]
    change_norm: Annotated[float, "norm of what the weights really changed by"]
    changed_share: Annotated[float, "share of the weights whose stored value changed, in the masters' precision"]
    changed_share_compute: Annotated[float, "share whose value changed in the compute precision"]
    lost_share: Annotated[float, "share that should have moved and did not: the step was too small for the precision"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightCheck:
    """Token weights of one group, formed again through one undivided graph from the logits on."""

    group: Annotated[int, "the group"]
    compared: Annotated[int, "tokens compared"]
    largest_relative: Annotated[float, "largest |recorded - autograd|, relative to the group's largest |token weight|"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Direction:
    """A gradient of one prompt, and what one step along it does."""

    name: Annotated[
        DirectionName,
        "'sft' (towards the target), 'grpo' (the recorded token weights), 'grpo_negative' (its answers with advantage < 0)",
    ]
    gradient_norm: Annotated[float, "norm of the gradient"]
    cosine_with_sft: Annotated[float | None, "cosine with the SFT gradient; null for a gradient of 0"]
    changes: Annotated[
        tuple[float, ...],
        "measured change of each watched answer's log-prob (nats) by a step of `step_norm` down this gradient",
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCosine:
    """Cosines of one layer's part of the gradients."""

    layer: Annotated[str, "'layers.3', or what a weight outside the layers is part of"]
    sft_norm: Annotated[float, "norm of the SFT gradient there"]
    grpo_norm: Annotated[float, "norm of the GRPO gradient there"]
    negative_norm: Annotated[float, "norm of its negative part there"]
    grpo_with_sft: Annotated[float | None, "cosine of GRPO with SFT"]
    negative_with_sft: Annotated[float | None, "cosine of GRPO's negative part with SFT"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """SFT beside GRPO on one prompt of the step, from the weights before it."""

    group: Annotated[int, "the group"]
    target: Annotated[str, "what SFT is shown: 'reference', or 'member 2' (the best-rewarded answer)"]
    target_text: Annotated[str, "its text"]
    step_norm: Annotated[
        float, "length of the step along each direction: SFT's raises its target by half a nat at temperature 1, to first order"
    ]
    precision: Annotated[str, "precision of the weights in which the steps were measured"]
    answers: Annotated[tuple[str, ...], "the watched answers: 'member 0', ..., and 'reference'"]
    directions: Annotated[tuple[Direction, ...], "the three directions"]
    layers: Annotated[tuple[LayerCosine, ...], "the same, layer by layer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A traced step."""

    step: Annotated[int, "training step"]
    why: Annotated[str, "why it was traced"]
    dtype: Annotated[str, "compute precision"]
    temperature: Annotated[float, "all log-probs and probabilities are at this sampling temperature"]
    failure: Annotated[str, "why the step was refused (NaN); empty for a finished step"]
    notes: Annotated[tuple[str, ...], "what was left out, and why"]
    updates: Annotated[tuple[UpdateTotals, ...], "each optimizer update"]
    positions: Annotated[tuple[TracedPosition, ...], "chosen positions with their alternatives"]
    check: Annotated[WeightCheck | None, "token weights against autograd; null when no answer was computed"]
    contrast: Annotated[Contrast | None, "SFT beside GRPO; null unless asked for (`toishi replay --trace`)"]
    texts: Annotated[tuple[TracedText, ...], "after.parquet"] = ()
    matrices: Annotated[tuple[MatrixChange, ...], "changes.parquet"] = ()

    def text(self, group: int, member: int) -> TracedText | None:
        """The sampled answer of that place; None when it is not in the trace."""
        return next((text for text in self.texts if (text.kind, text.group, text.member) == ("rollout", group, member)), None)

    def of_group(self, group: int) -> tuple[TracedText, ...]:
        """All watched answers to the group's prompt."""
        return tuple(text for text in self.texts if text.group == group)


IN_TABLES = ("texts", "matrices")
_FLOATS = pa.list_(pa.float64())

AFTER_COLUMNS = (
    Column("kind", pa.string(), "'rollout', 'greedy' (likeliest answer before the step), 'reference', or 'other_prompt'"),
    Column("group", pa.int32(), "the prompt's position in the step; null for a prompt that is not in it"),
    Column("member", pa.int32(), "the answer's position among its siblings; null for an answer that the step did not sample"),
    Column("prompt_id", pa.string(), "the prompt"),
    Column("text", pa.string(), "the answer"),
    Column("token_ids", pa.list_(pa.int32()), "its tokens, stop token included"),
    Column("token_texts", pa.list_(pa.string()), "each token decoded on its own"),
    Column("loss_mask", pa.list_(pa.int8()), "1 where the token counts; log-probs are 0 elsewhere"),
    Column("before", _FLOATS, "log-prob (nats) before the step's first update; as sampled, when the step was refused"),
    Column("after", _FLOATS, "log-prob (nats) after the step's last update; of the refused weights, when it was refused"),
)

CHANGE_COLUMNS = (
    Column("update", pa.int32(), "index of the optimizer update"),
    Column("name", pa.string(), "the trained weight"),
    Column("shape", pa.list_(pa.int64()), "its shape"),
    Column("weight_norm", pa.float64(), "its norm before the update"),
    Column("gradient_norm", pa.float64(), "norm of its gradient"),
    Column("clipped_norm", pa.float64(), "the same after clipping"),
    Column("step_norm", pa.float64(), "norm of the optimizer's own step: lr times Adam's quotient, or lr times the gradient"),
    Column("step_cosine", pa.float64(), "cosine between that step and plain descent along the gradient; null for 0"),
    Column("decay_norm", pa.float64(), "norm of what weight decay took off"),
    Column("change_norm", pa.float64(), "norm of the difference after - before"),
    Column("relative_change", pa.float64(), "change_norm / weight_norm; null for a weight of 0"),
    Column("changed_share", pa.float64(), "share of elements whose stored value changed, in the masters' precision"),
    Column("changed_share_compute", pa.float64(), "share whose value changed in the compute precision"),
    Column("lost_share", pa.float64(), "share that should have moved and did not: lost in rounding"),
)


def trace_fields() -> dict[str, str]:
    """Dotted name of every field of trace.json -> its meaning."""
    files = {
        "after_sha256": "sha256 of after.parquet",
        "changes_sha256": "sha256 of changes.parquet",
        "schema_version": "version of this layout",
        "seal": "sha256 of the rest of the file",
    }
    return dict(described_fields(Trace)) | files


def described_fields(cls: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Dotted name and meaning of every field of a dataclass whose fields carry their meaning, inner ones after theirs."""
    hints = get_type_hints(cls, include_extras=True)
    for field in fields(cls):
        if not prefix and field.name in IN_TABLES:
            continue
        kind, meaning = get_args(hints[field.name])[:2]
        inner = next((part for part in (kind, *get_args(kind)) if is_dataclass(part)), None)
        name = f"{prefix}{field.name}{'[]' if get_origin(kind) is tuple else ''}"
        yield name, meaning
        if inner is not None:
            yield from described_fields(inner, f"{name}.")
