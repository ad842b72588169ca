"""Who moved what, from influence.json and its arrays, as one group sees it."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from toishi.explanation.chain.model_influence import InfluenceLink, MatrixEffect, MovedText, Pull
from toishi.record.influence import Arrays, Influence, TextInfluence
from toishi.record.influence_files import has_influence, read_arrays, read_influence

_LAYER = re.compile(r"(?:^|\.)(?:layers|layer|h|blocks)\.(\d+)\.(.+)$")


def influence_link(folder: str, step: int, group: int) -> InfluenceLink | None:
    """The account of the step; None when it is not on record. Raises RecordError for a damaged one."""
    run = Path(folder)
    if not has_influence(run, step):
        return None
    found, arrays = read_influence(run, step), read_arrays(run, step)
    mine = [text for text in found.texts if text.group == group or text.kind == "other_prompt"]
    answers = sorted((text for text in mine if text.member is not None), key=lambda text: -text.advantage)
    everywhere = math.fsum(text.share for text in found.texts) + found.fixed_share
    return InfluenceLink(
        refused=found.refused,
        divides=found.optimizer.beta2 > 0,
        update=found.update,
        num_updates=found.num_updates,
        trust=found.trust,
        precision=found.precision,
        explained=1 - found.gap,
        largest=found.largest,
        gradient_norm=found.gradient_norm,
        norm_from_products=found.norm_from_products,
        sum_error=found.sum_error,
        clip_factor=found.clip_factor,
        changed_share=found.changed_share,
        survived=found.survived,
        step_norm=found.step_norm,
        bend=statistics.fmean(text.rest for text in found.texts) if found.texts else 0.0,
        fixed_share=found.fixed_share,
        elsewhere=math.fsum(text.share for text in found.texts if text.group != group),
        moved=tuple(MovedText(text=text, pulls=tuple(_pulls(found, arrays, text))) for text in mine),
        members=tuple(text.member for text in answers if text.member is not None),
        cosines=tuple(_cosines(arrays, answers)),
        effects=tuple(_effects(found, arrays)),
        sums_off=max([abs(everywhere - 1), *(abs(_parts(text) - text.measured) for text in found.texts)]),
    )


def _parts(text: TextInfluence) -> float:
    return math.fsum((text.own, text.others, text.fixed, text.history, text.decay, text.rounding, text.rest))


def _pulls(found: Influence, arrays: Arrays, text: TextInfluence) -> Iterator[Pull]:
    """scale · c_i <g_j, M g_i> of every answer i."""
    pulls = []
    for other in found.texts:
        if other.source is not None and other.group is not None and other.member is not None:
            nats = found.clip_factor * other.coefficient * float(arrays["metric"][text.row][other.source])
            pulls.append((other is not text, -abs(nats), Pull(group=other.group, member=other.member, nats=nats)))
    yield from (pull for _, _, pull in sorted(pulls, key=lambda item: item[:2]))


def _cosines(arrays: Arrays, answers: Sequence[TextInfluence]) -> Iterator[tuple[float, ...]]:
    products = arrays["products"]
    lengths = [math.sqrt(float(products[text.row][text.row])) or 1.0 for text in answers]
    for one, length in zip(answers, lengths, strict=True):
        row = zip(answers, lengths, strict=True)
        yield tuple(float(products[one.row][two.row]) / (length * other) for two, other in row)


def _effects(found: Influence, arrays: Arrays) -> Iterator[MatrixEffect]:
    """What each part of the model did for Σ c_j S_j, as a share of what all did."""
    coefficients = {text.row: 0.0 for text in found.texts}
    for text in found.texts:
        coefficients[text.row] += text.coefficient
    gained: dict[tuple[str, str], float] = {}
    for name, effects in zip(found.matrices, arrays["effects"], strict=True):
        place = place_of(name)
        gained[place] = gained.get(place, 0.0) + math.fsum(c * float(effects[row]) for row, c in coefficients.items())
    whole = math.fsum(gained.values())
    if whole > 0:
        yield from (MatrixEffect(layer=layer, kind=kind, share=gain / whole) for (layer, kind), gain in gained.items())


def place_of(name: str) -> tuple[str, str]:
    """(layer, kind) of a weight; the layer is empty for one outside the layers, and all norms are one kind.

    >>> place_of("model.layers.3.mlp.up_proj.weight"), place_of("model.embed_tokens.weight"), place_of("h.0.ln_1.bias")
    (('3', 'up_proj'), ('', 'embed_tokens'), ('0', 'norm'))
    >>> place_of("base_model.model.model.layers.1.self_attn.q_proj.lora_A.default.weight")
    ('1', 'q_proj')
    """
    match = _LAYER.search(name)
    rest = match[2] if match else name
    parts = [part for part in rest.split(".") if part not in ("weight", "default", "lora_A", "lora_B", "base_layer")]
    kind = parts[-1] if parts[-1] != "bias" or len(parts) == 1 else parts[-2]
    if "norm" in kind or kind.startswith("ln_"):
        kind = "norm"
    return (match[1] if match else "", kind)
