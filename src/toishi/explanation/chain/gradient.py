"""Links 6 and 7: the gradient's length, and what became of it in the weights.

Decision: neither the gradient nor the weights are on record, only their norms (a replay makes both again). What is checked is
that the norms fit together: cutting, matrices against the whole, and the change against the optimizer's step and the decay.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from toishi.explanation.chain.comparing import NORMS, WHOLE_NORM, Comparing
from toishi.explanation.chain.evidence import Evidence
from toishi.explanation.chain.model import ChangeLink, GradientLink, LayerChange, UpdateGradient
from toishi.record.trace import MatrixChange, UpdateTotals
from toishi.types import Update

SHOWN = 5
ROUNDING = 2.0**-23
"""Of a float32 master, relative: a change may miss what was asked for by so much of the weight."""
_LAYER = re.compile(r"(?:^|\.)((?:layers|layer|h|blocks)\.\d+)\.")
_NORM_NAMES = ("step_norm", "decay_norm", "change_norm")
_SHARE_NAMES = ("changed_share", "changed_share_compute", "lost_share")


def gradient_link(evidence: Evidence, how: str) -> GradientLink | None:
    """The gradient of each update before and after it was cut; None when the step has no update on record."""
    if not evidence.report.updates:
        return None
    comparing = Comparing("gradient")
    updates = tuple(_update(update, evidence, comparing) for update in evidence.report.updates)
    return GradientLink(updates=updates, check=comparing.check(how))


def change_link(evidence: Evidence, update: Update, how: str) -> ChangeLink | None:
    """What the shown update did to the weights; None without a trace, or when it moved nothing."""
    trace = evidence.trace
    totals = next((totals for totals in trace.updates if totals.update == update.index), None) if trace else None
    if trace is None or totals is None:
        return None
    rows = _rows(evidence, update.index)
    comparing = Comparing("change")
    comparing.relative("learning rate", totals.lr, update.scalars.get("update/lr", totals.lr))
    for row in rows:
        _compare_matrix(row, totals, comparing)
    _compare_totals(rows, totals, comparing)
    ordered = sorted(rows, key=lambda row: -(row.relative_change or 0.0))
    return ChangeLink(
        update=update.index,
        dtype=trace.dtype,
        totals=totals,
        weight_norm=_whole(rows, "weight_norm"),
        layers=tuple(_layers(rows)),
        top=tuple(ordered[:SHOWN]),
        bottom=tuple(ordered[max(SHOWN, len(ordered) - SHOWN) :]),
        check=comparing.check(how),
    )


def layer_of(name: str) -> str:
    """
    >>> layer_of("model.layers.3.mlp.up_proj.weight"), layer_of("model.embed_tokens.weight")
    ('layers.3', 'embed_tokens')
    """
    found = _LAYER.search(name)
    if found:
        return found.group(1)
    parts = [part for part in name.split(".") if part not in ("model", "transformer", "base_model", "weight", "bias")]
    return parts[0] if parts else name


def _update(update: Update, evidence: Evidence, comparing: Comparing) -> UpdateGradient:
    scalars, limit, name = update.scalars, evidence.max_grad_norm, f"update {update.index}"
    norm = float(scalars["update/grad_norm"])
    factor = 1.0 if limit is None or norm <= limit else limit / norm
    clipped = float(scalars.get("update/grad_norm_clipped", norm * factor))
    comparing.relative(f"{name}, length after cutting", clipped, norm * factor)
    rows = _rows(evidence, update.index)
    if rows:
        totals = next(totals for totals in evidence.trace.updates if totals.update == update.index) if evidence.trace else None
        comparing.relative(f"{name}, length of all matrices' gradients", norm, _whole(rows, "gradient_norm"), WHOLE_NORM)
        comparing.relative(
            f"{name}, length in the trace", totals.gradient_norm if totals else None, _whole(rows, "gradient_norm")
        )
        comparing.relative(f"{name}, factor of cutting", totals.clip_factor if totals else None, factor)
        for row in rows:
            comparing.relative(f"{name}, {row.name}, after cutting", row.clipped_norm, row.gradient_norm * factor)
    skipped = bool(scalars.get("update/skipped", 0.0))
    lr = float(scalars.get("update/lr", math.nan))
    return UpdateGradient(update=update.index, norm=norm, limit=limit, factor=factor, clipped=clipped, lr=lr, skipped=skipped)


def _rows(evidence: Evidence, index: int) -> list[MatrixChange]:
    return [row for row in evidence.trace.matrices if row.update == index] if evidence.trace else []


def _compare_matrix(row: MatrixChange, totals: UpdateTotals, comparing: Comparing) -> None:
    has_gradient = row.gradient_norm > 0
    if has_gradient:
        comparing.relative(f"{row.name}, decay", row.decay_norm, totals.lr * totals.weight_decay * row.weight_norm)
    if row.weight_norm > 0:
        comparing.relative(f"{row.name}, relative change", row.relative_change, row.change_norm / row.weight_norm)
    slack = ROUNDING * row.weight_norm + NORMS * (row.step_norm + row.decay_norm)
    most, least = row.step_norm + row.decay_norm, abs(row.step_norm - row.decay_norm)
    nearest = min(max(row.change_norm, least), most)
    comparing.number(f"{row.name}, change between step - decay and step + decay", row.change_norm, nearest, slack)
    fits = row.changed_share >= 0.0 and row.lost_share >= 0.0 and row.changed_share + row.lost_share <= 1.0 + NORMS
    comparing.fact(f"{row.name}, shares of changed and lost elements", fits)


def _compare_totals(rows: Sequence[MatrixChange], totals: UpdateTotals, comparing: Comparing) -> None:
    for name in _NORM_NAMES:
        comparing.relative(f"all matrices, {name}", getattr(totals, name), _whole(rows, name))
    for name in _SHARE_NAMES:
        comparing.number(f"all matrices, {name}", getattr(totals, name), _share(rows, name), NORMS)


def _whole(rows: Iterable[MatrixChange], name: str) -> float:
    return math.sqrt(math.fsum(getattr(row, name) ** 2 for row in rows))


def _share(rows: Sequence[MatrixChange], name: str) -> float:
    sizes = [math.prod(row.shape) for row in rows]
    total = math.fsum(getattr(row, name) * size for row, size in zip(rows, sizes, strict=True))
    return total / max(1, sum(sizes))


def _layers(rows: Sequence[MatrixChange]) -> Iterable[LayerChange]:
    by_layer: dict[str, list[MatrixChange]] = {}
    for row in rows:
        by_layer.setdefault(layer_of(row.name), []).append(row)
    for layer, mine in by_layer.items():
        weight, change = _whole(mine, "weight_norm"), _whole(mine, "change_norm")
        yield LayerChange(
            layer=layer,
            weight_norm=weight,
            gradient_norm=_whole(mine, "gradient_norm"),
            step_norm=_whole(mine, "step_norm"),
            change_norm=change,
            relative_change=change / weight if weight > 0 else None,
            changed_share=_share(mine, "changed_share"),
            changed_share_compute=_share(mine, "changed_share_compute"),
            lost_share=_share(mine, "lost_share"),
        )
