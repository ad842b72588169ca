"""Links 5 to 7 as sections: pushes on tokens, the gradient, the weights."""

from __future__ import annotations

from collections.abc import Sequence

from toishi.explanation.chain.headlines import alike, all_alike, heaviest
from toishi.explanation.chain.model import Chain, MemberWeights, TokenPush, WeightsLink
from toishi.explanation.chain.story_parts import section
from toishi.explanation.chain.voice import NOTHING, Voice, shown, tone, visible
from toishi.explanation.page.blocks import Block, Formula, Line, Paragraph, Section, Table, Token, Tokens
from toishi.explanation.page.markup import code
from toishi.record.trace import MatrixChange


def weights(chain: Chain, voice: Voice, rows: int) -> Section | None:
    """Every token with its push, and what the push is made of."""
    link = chain.weights
    if link is None:
        return None
    blocks: list[Block] = [Paragraph(voice.say("weights.what")), Formula(_formula(link, voice)), *_terms(link, voice)]
    members = [found for found in link.members if chain.member in (None, found.member)]
    largest = max((abs(token.weight) for found in link.members for token in found.tokens), default=0.0)
    blocks += [_strip(found, largest, voice) for found in link.members if found.computed]
    for found in link.members:
        if not found.computed:
            blocks.append(Paragraph(voice.say(f"weights.{found.why_not}", answer=f"#{found.member}")))
    most = heaviest(chain)
    if most is not None:
        blocks.append(Paragraph(_why_most(chain, link, most, voice)))
    table = _table(link, members, voice, rows)
    if table.lines:
        blocks += [table, *_cut(sum(len(found.tokens) for found in members), len(table.lines), voice)]
    if link.num_updates > 1:
        blocks.append(Paragraph(voice.say("weights.updates", shown=link.update, count=link.num_updates)))
    headline = voice.say("weights.headline_none")
    if most is not None:
        values = {"token": shown(most[1].text), "answer": f"#{most[0]}", "push": voice.signed(-most[1].weight)}
        count = all_alike(chain, most[0])
        headline = voice.say("weights.headline_all" if count else "weights.headline", count=count, **values)
    return section("weights", headline, blocks, link.check, voice)


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
    layers = Table(
        voice.columns("layer", "gradient_norm", "change_norm", "relative", "changed", "lost"),
        tuple(
            Line(
                (
                    code(item.layer),
                    *_cells(
                        item.gradient_norm,
                        item.change_norm,
                        item.relative_change,
                        item.changed_share,
                        item.lost_share,
                        voice=voice,
                    ),
                )
            )
            for item in link.layers
        ),
        voice.say("change.layers"),
    )
    blocks: list[Block] = [*(Paragraph(text) for text in texts), layers, _matrices(link.top, "change.top", voice)]
    if link.bottom:
        blocks.append(_matrices(link.bottom, "change.bottom", voice))
    return section("change", voice.say("change.headline", **values), blocks, link.check, voice)


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


def _formula(link: WeightsLink, voice: Voice) -> str:
    parts = ["advantage"]
    parts += [] if link.surrogate == "score_function" else ["ratio"]
    parts += ["correction"] if _corrected(link) else []
    parts += ["share"] + (
        [] if link.ratio_level == "token" or link.surrogate in ("score_function", "stop_gradient") else ["pooling"]
    )
    text = "push = " + " × ".join(voice.say(f"col.{part}") for part in parts)
    return text + (
        f" − {link.kl_coef:g} × {voice.say('col.share')} × {voice.say('col.kl')}" if link.kl_coef and link.kl != "none" else ""
    )


def _corrected(link: WeightsLink) -> bool:
    return any(token.correction != 1.0 for found in link.members for token in found.tokens)


def _terms(link: WeightsLink, voice: Voice) -> list[Block]:
    """What each factor is, in this row."""
    counts = {"tokens": link.num_tokens, "sequences": link.num_sequences, "limit": link.max_length}
    texts = [voice.say(f"weights.share_{link.reduction}", **counts)]
    if link.surrogate != "score_function":
        bounds = {"low": voice.number(1 - link.clip_low), "high": voice.number(1 + link.clip_high)}
        level = "token" if link.ratio_level == "token" else "answer"
        texts.append(voice.say(f"weights.ratio_{link.surrogate}", level=voice.say(f"weights.level_{level}"), **bounds))
    if link.kl != "none" and link.kl != "k1_in_reward":
        texts.append(voice.say("weights.kl", kl=link.kl, coef=voice.number(link.kl_coef)))
    if link.entropy_slope:
        texts.append(voice.say("weights.entropy", slope=voice.signed(-link.entropy_slope)))
    if link.through_logits is not None:
        texts.append(voice.say("weights.through_logits", relative=voice.number(link.through_logits)))
    return [Paragraph(text) for text in texts]


def _strip(found: MemberWeights, largest: float, voice: Voice) -> Tokens:
    items = tuple(
        Token(
            visible(token.text),
            -token.weight / largest if largest > 0 else 0.0,
            voice.say("weights.token", place=token.token + 1, push=voice.signed(-token.weight)),
        )
        for token in found.tokens
    )
    return Tokens(voice.say("weights.strip", answer=f"#{found.member}", push=voice.signed(-found.total)), items)


def _table(link: WeightsLink, members: Sequence[MemberWeights], voice: Voice, rows: int) -> Table:
    has_kl = link.kl not in ("none", "k1_in_reward") and link.kl_coef > 0
    tokens = [(found.member, token) for found in members for token in found.tokens if token.has_loss]
    if len(tokens) > rows:
        kept = sorted(tokens, key=lambda pair: -abs(pair[1].weight))[:rows]
        tokens = [pair for pair in tokens if pair in kept]
    lines = []
    for member, token in tokens:
        cells = [
            f"#{member}",
            str(token.token + 1),
            shown(token.text),
            voice.signed(token.advantage),
            voice.number(token.ratio),
        ]
        cells += [voice.say(f"clip.{token.clip}"), voice.number(token.share)]
        cells += [voice.signed(-token.kl_part)] if has_kl else []
        cells += [voice.signed(-token.weight), voice.signed(None if token.autograd is None else -token.autograd)]
        lines.append(Line(tuple(cells), "held" if abs(token.weight) < NOTHING else tone(-token.weight)))
    names = ["number", "place", "token", "advantage", "ratio", "clip", "share", *(["kl_part"] if has_kl else [])]
    return Table(voice.columns(*names, "push", "autograd"), tuple(lines), voice.say("weights.table"))


def _cut(there: int, shown_lines: int, voice: Voice) -> list[Paragraph]:
    return [Paragraph(voice.say("weights.cut", shown=shown_lines, all=there))] if there > shown_lines else []


def _why_most(chain: Chain, link: WeightsLink, most: tuple[int, TokenPush], voice: Voice) -> str:
    member, token = most
    factors = [f"({voice.signed(token.advantage)})"]
    factors += [] if link.surrogate == "score_function" else [voice.number(token.ratio_factor)]
    factors += [voice.number(token.correction)] if token.correction != 1 else []
    factors += [voice.number(token.share)] + ([voice.number(token.pooling)] if token.pooling != 1 else [])
    product = " × ".join(factors) + (f" + ({voice.signed(-token.kl_part)})" if token.kl_part else "")
    values = {"token": shown(token.text), "answer": f"#{member}", "product": product, "push": voice.signed(-token.weight)}
    text = voice.say("weights.why", **values)
    count = all_alike(chain, member)
    trained = [other for found in link.members for other in found.tokens if other.has_loss]
    same = sum(alike(other.weight, token.weight) for other in trained)
    if count:
        text += " " + voice.say("weights.whole_answer", count=count, answer=f"#{member}")
    if same > max(1, count):
        text += " " + voice.say("weights.equals", count=same - max(1, count))
    length = round(1 / (token.share * link.num_sequences)) if link.reduction == "sequence_mean_token_mean" else 0
    return text + " " + voice.say(f"weights.because_{link.reduction}", count=length)
