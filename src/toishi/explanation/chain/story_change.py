"""Links 6 and 7 as sections: the gradient, and what it did to the weights."""

from __future__ import annotations

from collections.abc import Sequence

from toishi.explanation.chain.model import Chain, ChangeLink
from toishi.explanation.chain.story_parts import section
from toishi.explanation.chain.voice import Voice
from toishi.explanation.page.blocks import Block, Folded, Line, Paragraph, Section, Table
from toishi.explanation.page.markup import code
from toishi.record.trace import MatrixChange


def gradient(chain: Chain, voice: Voice, rows: int) -> Section | None:
    """All pushes together: one direction, and how long it is."""
    link = chain.gradient
    if link is None:
        return None
    lines = tuple(
        Line(
            (
                str(update.update),
                voice.number(update.norm),
                voice.say("never") if update.limit is None else voice.number(update.limit),
                voice.number(update.factor),
                voice.number(update.clipped),
                voice.number(update.lr),
            )
        )
        for update in link.updates
    )
    names = ("update", "gradient_norm", "limit", "factor", "clipped_norm", "lr")
    mine = next((item for item in link.updates if chain.weights and item.update == chain.weights.update), link.updates[0])
    key = "skipped" if mine.skipped else "cut" if mine.factor < 1 else "whole"
    values = {"norm": voice.number(mine.norm), "limit": voice.number(mine.limit), "percent": voice.percent(mine.factor)}
    blocks: list[Block] = [Paragraph(voice.say("gradient.what")), Table(voice.columns(*names), lines)]
    return section("gradient", voice.say(f"gradient.headline_{key}", **values), blocks, link.check, voice)


def change(chain: Chain, voice: Voice, rows: int) -> Section | None:
    """What clipping, optimizer and decay made of the gradient, layer by layer."""
    link = chain.change
    if link is None:
        return None
    totals = link.totals
    relative = totals.change_norm / link.weight_norm if link.weight_norm > 0 else 0.0
    values = {
        "optimizer": voice.say(f"change.optimizer_{totals.optimizer}"),
        "gradient": voice.number(totals.gradient_norm),
        "clipped": voice.number(totals.gradient_norm * totals.clip_factor),
        "lr": voice.number(totals.lr),
        "step": voice.number(totals.step_norm),
        "decay": voice.number(totals.decay_norm),
        "change": voice.number(totals.change_norm),
        "relative": voice.percent(relative),
        "changed": voice.percent(totals.changed_share),
        "compute": voice.percent(totals.changed_share_compute),
        "lost": voice.percent(totals.lost_share),
        "dtype": link.dtype,
        "cosine": voice.number(totals.step_cosine),
    }
    texts = [voice.say("change.road", **values)]
    if totals.step_cosine is not None and totals.step_cosine < 0.999:
        texts.append(voice.say("change.turned", **values))
    texts.append(voice.say("change.rounding_lost" if totals.lost_share > 0.01 else "change.rounding", **values))
    if link.dtype not in ("float32", "float64"):
        texts.append(voice.say("change.compute", **values))
    tables: list[Block] = [_layers(link, voice), _matrices(link.top, "change.top", voice)]
    tables += [_matrices(link.bottom, "change.bottom", voice)] if link.bottom else []
    blocks: list[Block] = [*(Paragraph(text) for text in texts), Folded(voice.say("change.tables"), tuple(tables))]
    return section("change", voice.say("change.headline", **values), blocks, link.check, voice)


def _layers(link: ChangeLink, voice: Voice) -> Table:
    lines = []
    for item in link.layers:
        numbers = (item.gradient_norm, item.change_norm, item.relative_change, item.changed_share, item.lost_share)
        lines.append(Line((code(item.layer), *_cells(*numbers, voice=voice))))
    columns = voice.columns("layer", "gradient_norm", "change_norm", "relative", "changed", "lost")
    return Table(columns, tuple(lines), voice.say("change.layers"))


def _cells(
    gradient: float, change: float, relative: float | None, changed: float, lost: float, *, voice: Voice
) -> tuple[str, ...]:
    return voice.number(gradient), voice.number(change), voice.percent(relative), voice.percent(changed), voice.percent(lost)


def _matrices(rows: Sequence[MatrixChange], caption: str, voice: Voice) -> Table:
    lines = tuple(
        Line(
            (
                code(row.name.removeprefix("model.").removesuffix(".weight")),
                *_cells(
                    row.gradient_norm, row.change_norm, row.relative_change, row.changed_share, row.lost_share, voice=voice
                ),
            )
        )
        for row in rows
    )
    names = ("matrix", "gradient_norm", "change_norm", "relative", "changed", "lost")
    return Table(voice.columns(*names), lines, voice.say(caption, count=len(rows)))
