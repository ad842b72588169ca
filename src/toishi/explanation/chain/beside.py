"""Link 9: SFT beside GRPO on the group's prompt, as the trace measured it; its parts are held against the whole."""

from __future__ import annotations

import math

from toishi.explanation.chain.comparing import NORMS, Comparing
from toishi.explanation.chain.evidence import Evidence
from toishi.explanation.chain.model import SftLink
from toishi.record.trace import Contrast, Direction, DirectionName, LayerCosine

TARGET_NATS = 0.5
"""SFT's step is as long as raises its target by so much, to first order."""


def sft_link(evidence: Evidence, how: str) -> SftLink | None:
    """The contrast on this group; None when there is none, or it is about another group."""
    contrast = evidence.trace.contrast if evidence.trace else None
    if contrast is None or contrast.group != evidence.number:
        return None
    comparing = Comparing("sft")
    by_name = {direction.name: direction for direction in contrast.directions}
    parts: dict[DirectionName, list[tuple[float, float | None]]] = {
        "sft": [(layer.sft_norm, 1.0 if layer.sft_norm else None) for layer in contrast.layers],
        "grpo": [(layer.grpo_norm, layer.grpo_with_sft) for layer in contrast.layers],
        "grpo_negative": [(layer.negative_norm, layer.negative_with_sft) for layer in contrast.layers],
    }
    sft = by_name["sft"]
    for name, layers in parts.items():
        _compare(by_name[name], layers, contrast.layers, sft.gradient_norm, comparing)
    _compare_length(evidence, contrast, sft, comparing)
    for direction in contrast.directions:
        comparing.number(f"{direction.name}, answers", len(direction.changes), len(contrast.answers), 0.0)
    return SftLink(contrast=contrast, check=comparing.check(how))


def _compare(
    direction: Direction,
    parts: list[tuple[float, float | None]],
    layers: tuple[LayerCosine, ...],
    sft_norm: float,
    comparing: Comparing,
) -> None:
    whole = math.sqrt(math.fsum(norm**2 for norm, _ in parts))
    comparing.relative(f"{direction.name}, gradient norm", direction.gradient_norm, whole)
    product = math.fsum(norm * (cosine or 0.0) * layer.sft_norm for (norm, cosine), layer in zip(parts, layers, strict=True))
    if whole > 0 and sft_norm > 0:
        comparing.number(f"{direction.name}, cosine with SFT", direction.cosine_with_sft, product / (whole * sft_norm), NORMS)


def _compare_length(evidence: Evidence, contrast: Contrast, sft: Direction, comparing: Comparing) -> None:
    tokens = _target_tokens(evidence, contrast)
    if tokens and sft.gradient_norm > 0:
        comparing.relative("length of the step", contrast.step_norm, TARGET_NATS / (tokens * sft.gradient_norm))


def _target_tokens(evidence: Evidence, contrast: Contrast) -> int:
    trace = evidence.trace
    mine = trace.of_group(contrast.group) if trace else ()
    for text in mine:
        name = "reference" if text.kind == "reference" else f"member {text.member}"
        if name == contrast.target:
            return sum(text.loss_mask)
    return 0
